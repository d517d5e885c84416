"""The tables of what ``python -m benchmarks.aot`` found."""

import json
from pathlib import Path
from typing import Any

TOO_LARGE = "too large for a chip"

Rows = tuple[list[str], list[list[str]]]


def streams_rows(file: Path, chip: str) -> Rows:
    """What a step moves beside the least, and temporary buffers, for each dtype."""
    found = [row for row in _study(file, "streams") if row["chip"] == chip]
    dtypes = list(dict.fromkeys(row["dtype"] for row in found))
    body = []
    for name in dict.fromkeys(row["optimizer"] for row in found):
        cells = [name]
        for row in (r for r in found if r["optimizer"] == name):
            cells += [str(row["least"] or "–"), f"{row['streams']:.2f}", f"{row['temporary']:.2f}"]
        body.append(cells)
    heads = [f"{dtype}: {what}" for dtype in dtypes for what in ("least", "moved", "temporary")]
    return ["", *heads], body


def compilation_rows(file: Path) -> Rows:
    """Processor time to compile 500 leaves over Adam's, for each chip."""
    found = _study(file, "compilation")
    chips = list(dict.fromkeys(row["chip"] for row in found))
    names = dict.fromkeys(row["optimizer"] for row in found)
    ratios = {(row["chip"], row["optimizer"]): f"{row['ratio']:.2f}" for row in found}
    return ["", *chips], [[name, *(ratios[chip, name] for chip in chips)] for name in names]


def shapes_rows(file: Path) -> Rows:
    """For each shape and optimizer, on which chips and in which dtypes the step compiles."""
    found = _study(file, "shapes")
    names = list(dict.fromkeys(row["optimizer"] for row in found))
    body = []
    for shape in dict.fromkeys(row["shape"] for row in found):
        own = [row for row in found if row["shape"] == shape]
        body.append([shape, *(_said([r for r in own if r["optimizer"] == n]) for n in names)])
    return ["", *names], body


def _said(rows: list[dict[str, Any]]) -> str:
    """What is refused, where and why, if anything is."""
    against: dict[str, list[str]] = {}
    for row in rows:
        if row["refused"]:
            why = row["refused"] if row["refused"] == TOO_LARGE else "refused"
            against.setdefault(why, []).append(f"{row['chip']} {row['dtype']}")
    said = [f"{why}: {', '.join(cases)}" for why, cases in against.items()]
    return "; ".join(said) or "compiles"


def _study(file: Path, name: str) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8"))[name]
