"""Draws the pictures of a folder's results, and prints which goals they meet."""

from pathlib import Path

from benchmarks.self_tuning import pictures
from benchmarks.self_tuning.analysis import Results
from benchmarks.self_tuning.goals import goals


def write(folder: Path, seeds: int = 3) -> None:
    """Draws into the folder; the tables are on the page that ``benchmarks.tables`` writes there."""
    results = Results(folder, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    pictures.draw(results, folder)
    print(*(str(goal) for goal in goals(results)), f"drew the pictures of {folder}", sep="\n")
