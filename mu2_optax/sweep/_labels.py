"""Several results by their labels: in memory and in one file."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mu2_optax.sweep._files import read_fields, write_fields
from mu2_optax.sweep._result import SweepResult


def save_results(
    results: SweepResult | Iterable[SweepResult] | Mapping[str, SweepResult], path: str | Path
) -> None:
    """Writes results to one file, JSON or CSV by its suffix, in one atomic step.

    JSON is strict (NaN and Inf are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``) and
    keeps everything with its dtype. CSV has the columns ``optimizer``, the axes, ``seed``, each
    metric, and ``error`` if a cell failed; curves are JSON lists in their column; cells that were
    not run have no row. Numbers are written in full, so both read back exactly.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      path: A file name that ends in ``.json`` or ``.csv``.
    """
    write_fields([vars(result) for result in by_label(results).values()], path)


def load_results(path: str | Path) -> dict[str, SweepResult]:
    """Reads results by label from a file written by `save_results`.

    Args:
      path: A ``.json`` or ``.csv`` file.

    Returns:
      The results by label.

    Raises:
      ValueError: If the file is not one of ours.
    """
    return {fields["label"]: SweepResult(**fields) for fields in read_fields(path)}


def by_label(results: Any) -> dict[str, SweepResult]:
    """Results by label, from a result, a list of results or a dict of results.

    Raises:
      ValueError: If two results have the same label.
    """
    if isinstance(results, SweepResult):
        return {results.label: results}
    if isinstance(results, Mapping):
        return {name: replace(result, label=name) for name, result in results.items()}
    labelled: dict[str, SweepResult] = {}
    for result in results:
        if result.label in labelled:
            raise ValueError(
                f"two results have the label {result.label!r}; give each sweep its own `label`, "
                "or join them with `merge`."
            )
        labelled[result.label] = result
    return labelled
