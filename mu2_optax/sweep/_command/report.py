"""The table that the command line prints."""

from collections.abc import Mapping

import numpy as np

from mu2_optax.sweep import SweepResult, plateau_width, stability_range
from mu2_optax.sweep._mode import Mode


def table(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A row per optimizer: the metric's mean at each rate, plateau width, stability ratio.

    The plateau is measured against the best value in the whole table. The row with the widest
    plateau, and among equals the best mean over rates, is marked with an asterisk.

    Args:
      results: The results by label, over the same rates.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.

    Returns:
      The text.
    """
    better_low = mode == "min"
    means = {label: _means(result, metric) for label, result in results.items()}
    finite = np.concatenate([m[np.isfinite(m)] for m in means.values()])
    best = float(finite.min() if better_low else finite.max()) if finite.size else np.nan
    tolerance = abs(best) if better_low else 0.02  # a loss: up to twice the best
    rates = next(iter(results.values())).learning_rates
    rows, scores = [], {}
    for label, result in results.items():
        cells = [
            _number(value, bool(done.all()))
            for value, done in zip(means[label], result.finished, strict=True)
        ]
        if result.finished.all() and np.isfinite(best):
            width = plateau_width(result, metric, tolerance, best=best, mode=mode).value
            optimum = _optimum(mode, best)
            ratio = stability_range(result, metric, optimum=optimum, mode=mode).value
            worst = np.nan_to_num(means[label], nan=np.inf if better_low else -np.inf)
            scores[label] = (width, -float(worst.mean()) if better_low else float(worst.mean()))
            cells += [f"{width:.1f}", f"{ratio:.3g}"]
        else:
            cells += ["--", "--"]
        rows.append((label, cells))
    winner = max(scores, key=lambda label: scores[label]) if scores else None
    header = [_rate(rate) for rate in rates] + ["plateau", "ratio"]
    columns = [
        max(len(header[i]), *(len(cells[i]) for _, cells in rows)) + 1 for i in range(len(header))
    ]
    names = max(len(label) for label in results) + 2
    lines = [f"{metric.replace('_', ' ')}, mean of {len(next(iter(results.values())).seeds)} seeds"]
    lines.append(" " * names + "".join(h.rjust(w) for h, w in zip(header, columns, strict=True)))
    for label, cells in rows:
        mark = "* " if label == winner else "  "
        body = "".join(cell.rjust(w) for cell, w in zip(cells, columns, strict=True))
        lines.append(f"{mark}{label.ljust(names - 2)}{body}")
    lines.append(
        f"plateau: decades of rates within {tolerance:.2g} of the table's best; ratio: largest to "
        "smallest\nrate whose distance from a perfect score is at most twice the row's best; "
        "*: widest plateau."
    )
    return "\n".join(lines)


def _means(result: SweepResult, metric: str) -> np.ndarray:
    """The mean over finished seeds at each rate; NaN if one diverged or none has finished."""
    values = result.final(metric)
    count = result.finished.sum(axis=1)
    total = np.where(result.finished, values, 0.0).sum(axis=1)
    means = np.full(len(values), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _optimum(mode: Mode, best: float) -> float | None:
    """The measure's own default, unless the metric goes beyond it."""
    if mode == "min":
        return None if best >= 0 else best
    return None if best <= 1 else best


def _number(value: float, finished: bool) -> str:
    if not np.isfinite(value):
        return "div" if finished else "--"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.2g}"
    return text.removeprefix("0") if 0 < value < 1 else text


def _rate(rate: float) -> str:
    mantissa, exponent = f"{rate:e}".split("e")
    short = f"{float(mantissa):.3g}e{int(exponent)}"
    plain = f"{rate:g}"
    return plain if len(plain) <= 4 else short
