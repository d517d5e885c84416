"""The table that the command line prints."""

from collections.abc import Mapping

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep._mode import Mode
from mu2_optax.sweep._summary import Row, number_text, rate_text, summarize


def table(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A row per optimizer: the metric's mean at each rate, plateau width, stability ratio.

    The plateau is measured against the best value in the whole table. The row with the widest
    plateau, and among equals the best mean over rates, is marked with an asterisk.

    Args:
      results: The results by label.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.

    Returns:
      The text.
    """
    summary = summarize(results, metric, mode)
    rows = {label: _cells(row) for label, row in summary.rows.items()}
    header = [rate_text(rate) for rate in summary.rates] + ["plateau", "ratio"]
    columns = [
        max(len(header[i]), *(len(cells[i]) for cells in rows.values())) + 1
        for i in range(len(header))
    ]
    names = max(len(label) for label in results) + 2
    lines = [f"{metric.replace('_', ' ')}, mean of {len(next(iter(results.values())).seeds)} seeds"]
    lines.append(" " * names + "".join(h.rjust(w) for h, w in zip(header, columns, strict=True)))
    for label, cells in rows.items():
        mark = "* " if label == summary.widest else "  "
        body = "".join(cell.rjust(w) for cell, w in zip(cells, columns, strict=True))
        lines.append(f"{mark}{label.ljust(names - 2)}{body}")
    lines.append(
        f"plateau: decades of rates within {summary.reach} of the table's best;\n"
        "ratio: largest to smallest rate whose distance from a perfect score is at most twice the\n"
        "row's best; *: widest plateau."
    )
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    values = [number_text(*cell) for cell in zip(row.means, row.finished, strict=True)]
    if row.plateau is None or row.stable is None:
        return [*values, "--", "--"]
    return [*values, f"{row.plateau.value:.1f}", rate_text(row.stable.value)]
