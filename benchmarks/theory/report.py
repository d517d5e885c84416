"""Where the measurements go: CSV files and pictures under ``benchmarks/results/theory``."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parents[1] / "results" / "theory"
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
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([f"{v:.5g}" if isinstance(v, float) else v for v in row.values()])


def save(figure: Any, name: str) -> None:
    """Writes a picture."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png")
    plt.close(figure)
    print(f"wrote {RESULTS.name}/{name}.png")
