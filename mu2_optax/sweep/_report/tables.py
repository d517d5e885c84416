"""The lists and tables of a report: best settings, measures, what diverged, how it was run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np

from mu2_optax.sweep._analysis.metrics import as_heading, in_words, is_flat
from mu2_optax.sweep._analysis.styles import Look, Looks
from mu2_optax.sweep._analysis.summary import Summary, number_text, rate_text
from mu2_optax.sweep._results.result import SweepResult

_ON_PAPER = 13  # columns of a table that fit


def best_settings(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> str:
    """The best rate of each result, what it gives, and the line that makes it."""
    name, items = escape(in_words(summary.metric)), ""
    for label, rate in summary.best_rates.items():
        row = summary.rows[label]
        at = " without a learning rate" if row.flat else f" at {rate_text(rate)}"
        place = row.untouched
        if place is not None and not row.flat and place != row.tuned:
            steps, default = row.stopped[place], rate_text(summary.rates[place])
            value = f"stopped after {steps} steps" if steps else row.texts[place]
            at += f"; {value} at the published default, {default}"
        line = escape(_python_line(results[label], label, rate))
        items += (
            f"<li><p>{looks[label].key()}<b>{escape(label or 'This sweep')}</b> "
            f"{name} {number_text(row.best)}{at}</p>"
            f'<pre class="copied"><code>{line}</code></pre></li>'
        )
    if not items:
        return ""
    return (
        f'<h2>The best setting of each</h2><ul class="settings">{items}</ul>'
        f'<p class="facts">The learning rate of the grid with the best mean of {name} over the '
        "seeds.</p>"
    )


def _python_line(result: SweepResult, label: str, rate: float) -> str:
    """The constructor's call at a learning rate, or the rate alone if no constructor is known."""
    template = result.info.get("python")
    if isinstance(template, str):
        return template.replace("{learning_rate}", repr(rate))
    comment = " ".join(label.split())
    if is_flat(result):
        return f"# {comment or 'this sweep'}: no learning rate to choose"
    return f"learning_rate = {rate!r}{f'  # {comment}' if comment else ''}"


def table(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> str:
    """The metric's mean at each rate and the measures; what is near the best is shaded."""
    names = [*map(rate_text, summary.rates), "plateau", "ratio"]
    if summary.has_sensitivity:
        names.append("sensitivity")
    rows = [_row(looks[label], results[label], summary, label) for label in summary.rows]
    star = " ★: the widest plateau." if len(results) > 1 and summary.widest else ""
    within = summary.within("the table's best")
    failed = any("err" in row.texts for row in summary.rows.values())
    halved = any(row.stopped.any() for row in summary.rows.values())
    stopped = "@27: stopped by halving, after 27 steps; " if halved else ""
    return (
        f"<h2>{escape(as_heading(summary.metric))} at each learning rate</h2>"
        f"{html_table(names, rows)}"
        f'<p class="facts">Means over seeds. <span class="near">Shaded</span>: {within}; '
        "div: a seed diverged; "
        f"{'err: a seed failed; ' if failed else ''}{stopped}--: not finished.{star}</p>"
    )


def html_table(
    columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], kind: str = ""
) -> str:
    """A table that scrolls on a screen, and continues below itself on paper if it is too wide.

    Each row is its head, by `row_head`, and its cells; ``kind`` is the table's class.
    """

    def part(start: int, stop: int) -> str:
        heads = "".join(f'<th scope="col">{name}</th>' for name in columns[start:stop])
        body = "".join(f"{head}{''.join(cells[start:stop])}</tr>" for head, cells in rows)
        head = f"<thead><tr><th></th>{heads}</tr></thead>"
        return f"<table{_class(kind)}>{head}<tbody>{body}</tbody></table>"

    whole = f'<div class="scroll">{part(0, len(columns))}</div>'
    if len(columns) <= _ON_PAPER:
        return whole
    parts = "".join(part(i, i + _ON_PAPER) for i in range(0, len(columns), _ON_PAPER))
    return f'<div class="unprinted">{whole}</div><div class="printed">{parts}</div>'


def row_head(text: str, kind: str = "") -> str:
    """The beginning of a row, and the cell that names it."""
    return f'<tr{_class(kind)}><th scope="row">{text}</th>'


def cell(text: str, kind: str = "") -> str:
    """A cell of a table; ``kind`` is its class."""
    return f"<td{_class(kind)}>{text}</td>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def measure_definitions(summary: Summary) -> str:
    """Each measure in a sentence."""
    name = escape(in_words(summary.metric))
    perfect = "0" if summary.mode == "min" else "1"
    sentences = {
        "plateau": "The width, in decades, of the widest run of neighbouring learning rates whose "
        f"{name} is within {summary.tolerance_text} of the best in the table; 3.0 means that "
        "the learning rate may be wrong by a factor of a thousand.",
        "ratio": "The largest over the smallest learning rate whose distance from a perfect score "
        f"({perfect}, or the best seen if that is better) is at most twice the row's own best: how "
        "far this optimizer may be from its own best rate.",
    }
    if summary.has_sensitivity:
        sentences["sensitivity"] = (
            f"The mean over all learning rates of how much worse {name} is than at the row's best "
            "rate, where nothing counts as worse than before training; 0 means that the learning "
            "rate does not matter."
        )
    items = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in sentences.items())
    return (
        f"<h2>The measures</h2><dl>{items}</dl>"
        '<p class="facts">Small numbers are bootstrap intervals (95 %) over the seeds; with few '
        "seeds they are coarse. A rate at which a seed diverged counts as the worst possible. All "
        "measures see only the rates of the grid.</p>"
    )


def divergence(results: Mapping[str, SweepResult]) -> str:
    """Every rate at which a cell diverged or failed, and why."""
    rows = []
    for label, result in results.items():
        bad = {name: result.diverged(name) for name in result.metrics}
        rates: dict[tuple[str, str], list[str]] = {}  # by the seeds and the reason
        for i, lost in enumerate(result.diverged()):
            seeds: dict[str, list[str]] = {}  # by the reason
            for j in np.flatnonzero(lost).tolist():
                names = ", ".join(name for name, where in bad.items() if where[i, j])
                why = result.errors.get((i, j)) or f"not finite: {names}"
                seeds.setdefault(why, []).append(str(result.seeds[j]))
            rate = "none" if is_flat(result) else rate_text(result.learning_rates[i])
            for why, lost_seeds in seeds.items():
                rates.setdefault((", ".join(lost_seeds), why), []).append(rate)
        for (listed, why), own in rates.items():
            at = cell(", ".join(dict.fromkeys(own)), "figure")
            rows.append((row_head(escape(label)), [at, cell(listed), cell(escape(why))]))
    if not rows:
        return "<h2>What diverged</h2><p>Nothing: every finished cell has finite metrics.</p>"
    return f"<h2>What diverged</h2>{html_table(['learning rate', 'seeds', 'why'], rows, 'text')}"


def history(results: Mapping[str, SweepResult], command: str | None) -> str:
    """The command, the date, the versions, the machine and the time."""
    facts = run_facts(results.values())
    recorded = facts.pop("command", "")
    shown = f"<pre>{escape(command or recorded)}</pre>" if command or recorded else ""
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    rows = []
    for label, result in results.items():
        strategy = escape(str(result.info.get("strategy", "--")))
        seconds = [_seconds(result.info.get(f"{part}_seconds")) for part in ("compile", "run")]
        cells = [cell(text) for text in (strategy, *seconds)]
        rows.append((row_head(escape(label or "sweep")), cells))
    timings = html_table(["strategy", "compiling", "running"], rows)
    return f"<h2>How it was run</h2>{shown}<dl>{listed}</dl>{timings}"


def run_facts(results: Iterable[SweepResult]) -> dict[str, str]:
    """What ``info`` says about a run, as text; what it does not say is left out."""
    infos = [result.info for result in results]
    versions = [info.get("versions") or {"jax": info.get("jax")} for info in infos]
    contexts = [info.get("context") or {} for info in infos]
    facts = {
        "command": distinct(str(info.get("command") or "") for info in infos),
        "date": _dates(infos),
        "versions": distinct(
            ", ".join(f"{name} {version}" for name, version in own.items() if version)
            for own in versions
        ),
        "machine": distinct(_machine(info["machine"]) for info in infos if info.get("machine")),
        "context": distinct(
            ", ".join(f"{name} = {value}" for name, value in own.items()) for own in contexts
        ),
    }
    return {name: text for name, text in facts.items() if text}


def distinct(texts: Iterable[str]) -> str:
    """The texts that are not empty, each of them once."""
    return "; ".join(dict.fromkeys(text for text in texts if text))


def count(number: int, thing: str) -> str:
    """A number of things.

    Examples:
      >>> count(1, "seed"), count(3, "seed")
      ('1 seed', '3 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _row(look: Look, result: SweepResult, summary: Summary, label: str) -> tuple[str, list[str]]:
    """The head of a result's row, and its cells."""
    row, several = summary.rows[label], len(result.seeds) > 1
    cells = []
    for mean, finished, text in zip(row.means.tolist(), row.finished, row.texts, strict=True):
        near = abs(mean - summary.best) <= summary.tolerance * (1 + 1e-6)
        kind = "near" if near else "" if isfinite(mean) else "lost" if finished else "none"
        cells.append(cell(text, kind))
    cells.append(_measure_cell(row.plateau, "{:.1f}".format, several))
    cells.append(_measure_cell(row.stability, rate_text, several))
    if summary.has_sensitivity:
        cells.append(_measure_cell(row.sensitivity, number_text, several))
    widest = "widest" if label in summary.widest and len(summary.rows) > 1 else ""
    flat = '<span class="interval">no learning rate</span>' if row.flat else ""
    name = escape(label or in_words(summary.metric))
    return row_head(f"{look.key()}{name}{flat}", widest), cells


def _measure_cell(measure: Any, text: Callable[[float], str], several: bool) -> str:
    """A measure, and its interval where there are several seeds to take it over."""
    if measure is None:
        return cell("--", "none")
    low, high = (text(end) for end in measure.interval)
    interval = f'<span class="interval">{low} … {high}</span>' if several else ""
    return cell(f"{text(measure.value)}{interval}")


def _dates(infos: Sequence[Mapping[str, Any]]) -> str:
    """The day and minute of the first sweep, and of the last if that is another day."""
    known = sorted(str(info["date"]) for info in infos if info.get("date"))
    if not known:
        return ""
    ends = dict.fromkeys(date[:10] for date in (known[0], known[-1]))
    if len(ends) > 1:
        return " to ".join(ends)
    day, _, minute = known[0][:16].partition("T")
    return f"{day} {minute} UTC"


def _machine(machine: Mapping[str, Any]) -> str:
    devices = f"{machine['devices']} × {machine['device']}"
    return f"{machine['architecture']}, {count(machine['cores'], 'core')}, {devices}"


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else "--"
