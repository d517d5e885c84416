"""Where the measurements go: CSV files and pictures under ``benchmarks/results/theory``."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks import files
from benchmarks.files import write_rows
from benchmarks.pictures import write_picture

RESULTS = files.RESULTS / "theory"
COLORS = {
    "mu2_sgd": "#0072b2",
    "uniform": "#56b4e9",
    "mu2_extra_sgd": "#009e73",
    "mu2_frank_wolfe": "#cc79a7",
    "storm": "#e69f00",
    "anytime": "#999999",
    "sgd": "#d55e00",
}
plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "figure.dpi": 110})


def write_csv(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a table, with numbers to five digits; the columns are the keys of the first row."""
    write_rows(RESULTS / f"{name}.csv", rows, digits=5)


def save(figure: Any, name: str) -> None:
    """Writes a picture."""
    figure.tight_layout()
    write_picture(figure, RESULTS / f"{name}.png")
    plt.close(figure)
    print(f"wrote {RESULTS.name}/{name}.png")
