"""Writes ``report.md`` with all tables, and the pictures beside it."""

from pathlib import Path

from benchmarks.self_tuning import pictures, rows, sentences
from benchmarks.self_tuning.analysis import Results
from benchmarks.self_tuning.goals import goals


def write(folder: Path, seeds: int = 3) -> None:
    """Writes the report of a folder's results into it."""
    results = Results(folder, seeds)
    parts = ["# Self-tuning", sentences.made(results), sentences.edges(results)]
    parts += ["## Goals", rows.markdown(*rows.goal_rows(results))]
    parts += ["## Profile scores", rows.markdown(*rows.score_rows(results))]
    for side in rows.SIDES:
        table = rows.markdown(*rows.front_rows(results, side))
        parts += [f"## {side.capitalize()}", sentences.answer(results, side)]
        parts += [table, sentences.coverage(results, side)]
        for role in rows.ROLES:
            table = rows.markdown(*rows.task_rows(results, side, role))
            parts += [f"## {side.capitalize()}, {role}", table]
    parts += ["## Factors", rows.markdown(*rows.factor_rows(results))]
    parts += ["## Batch sizes and horizons", rows.markdown(*rows.variant_rows(results))]
    parts += ["## What it costs in time", rows.markdown(*rows.time_rows(results))]
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(part.strip() for part in parts)
    (folder / "report.md").write_text(f"{text}\n", encoding="utf-8")
    pictures.draw(results, folder)
    print(*(str(goal) for goal in goals(results)), f"wrote {folder / 'report.md'}", sep="\n")
