"""Where the measurements go: CSV files and pictures under ``benchmarks/results/theory``."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import files
from benchmarks.files import write_rows
from benchmarks.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW, write_picture

RESULTS = files.RESULTS / "theory"
COLORS = {
    "mu2_sgd": BLUE,
    "uniform": SKY,
    "mu2_extra_sgd": GREEN,
    "mu2_frank_wolfe": PURPLE,
    "storm": YELLOW,
    "anytime": GREY,
    "sgd": ORANGE,
}


def write_csv(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a table, with numbers to five digits; the columns are the keys of the first row."""
    write_rows(RESULTS / f"{name}.csv", rows, digits=5)


def points(line: str, x: Any, y: Any, panel: str = "") -> list[dict[str, Any]]:
    """The points of a line of a picture, in their order."""
    places = zip(x, y, strict=True)
    return [{"panel": panel, "line": line, "x": float(a), "y": float(b)} for a, b in places]


def save(chart: Any, name: str) -> None:
    """Writes a picture."""
    write_picture(chart, RESULTS / f"{name}.png")
