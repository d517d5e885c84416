"""What was run: one small JSON file a task, written whole after every run."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.files import RESULTS, command_line, git, machine, versions

FOLDER = RESULTS / "self_tuning"
MODULE = "benchmarks.self_tuning"


class Cell(NamedTuple):
    """Which run it is."""

    peer: str
    rate: float
    seed: int


Runs = dict[Cell, dict[str, Any]]


class Records:
    """The runs of a task in a folder.

    Processes may work in the same folder, also on the same task: what is in the file is read again
    before something is added to it.
    """

    def __init__(self, folder: Path, task: str):
        self.file = folder / f"{task}.json"
        self.task = task

    def read(self) -> Runs:
        """All runs; each has ``curve``, ``validation`` and ``test``, NaN where it diverged."""
        return {_cell(run): _run(run) for run in self._content()["runs"]}

    def info(self) -> list[dict[str, Any]]:
        """On which machine, with which versions and from which commit the runs were made."""
        return self._content()["info"]

    def add(self, cell: Cell, result: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Adds a run, or replaces it."""
        content = self._content()
        runs = [run for run in content["runs"] if _cell(run) != cell]
        if info not in content["info"]:
            content["info"].append(dict(info))
        run = {"info": content["info"].index(info), **cell._asdict(), **_rounded(result)}
        content["runs"] = sorted([*runs, run], key=lambda run: _cell(run))
        self._write(content)

    def drop(self, peer: str) -> None:
        """Forgets the runs of an optimizer."""
        content = self._content()
        content["runs"] = [run for run in content["runs"] if run["peer"] != peer]
        if self.file.is_file():
            self._write(content)

    def _content(self) -> dict[str, Any]:
        if not self.file.is_file():
            return {"task": self.task, "info": [], "runs": []}
        return json.loads(self.file.read_text(encoding="utf-8"))

    def _write(self, content: Mapping[str, Any]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(run, allow_nan=False) for run in content["runs"])
        head = json.dumps({"task": content["task"], "info": content["info"]}, indent=1)
        temporary = self.file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(f'{head[:-2]},\n "runs": [\n{lines}\n]}}\n', encoding="utf-8")
        temporary.replace(self.file)


def made_by(frozen: str | None) -> dict[str, Any]:
    """The machine, the versions, the command and the commit of the runs of this process."""
    return {
        "command": command_line(MODULE),
        "commit": git("rev-parse", "--short=12", "HEAD"),
        "frozen": frozen,
        "machine": machine(),
        "versions": versions(),
    }


def _cell(run: Mapping[str, Any]) -> Cell:
    return Cell(run["peer"], run["rate"], run["seed"])


def _rounded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Six digits are more than a run means, and JSON has no NaN."""
    number = lambda x: float(f"{x:.6g}") if math.isfinite(x) else None
    return {
        name: [number(x) for x in value] if isinstance(value, list) else number(value)
        for name, value in result.items()
    }


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    number = lambda x: math.nan if x is None else x
    curve = [number(x) for x in run["curve"]]
    numbers = {name: number(run[name]) for name in ("validation", "test", "seconds")}
    return {"info": run["info"], "curve": curve, **numbers}
