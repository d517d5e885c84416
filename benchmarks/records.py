"""What was run: one JSON file for each task, written whole after every addition."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.files import command_line, git, machine, versions

Runs = dict[Any, dict[str, Any]]


class Records:
    """The runs of a task in a file.

    Processes may work on the same file: what is in it is read again before something is added.

    Args:
      file: The file; it need not exist.
      cell: The NamedTuple that says which run it is, such as (optimizer, rate, seed).
      task: What the numbers depend on besides; the runs of another task are refused. None to read
        whatever is there.
    """

    def __init__(self, file: Path, cell: Any, task: Any):
        self.file, self.task, self._cell = file, task, cell

    def read(self) -> Runs:
        """All runs by their cells: their metrics, numbers or curves, NaN where one diverged."""
        runs = {}
        for run in self._content()["runs"]:
            values = {name: _with_nan(value) for name, value in run.items()}
            runs[self._cell(*map(values.pop, self._cell._fields))] = values
        return runs

    def info(self) -> list[dict[str, Any]]:
        """On which machine, with which versions and from which commit the runs were made."""
        return self._content()["info"]

    def add(self, results: Runs, info: Mapping[str, Any]) -> None:
        """Adds runs, or replaces them."""
        content = self._content()
        if info not in content["info"]:
            content["info"].append(dict(info))
        number = content["info"].index(info)
        runs = {self._of(run): run for run in content["runs"]}
        for cell, result in results.items():
            runs[cell] = {"info": number, **cell._asdict(), **_rounded(result)}
        content["runs"] = [runs[cell] for cell in sorted(runs)]
        self._write(content)

    def drop(self, name: str) -> None:
        """Forgets the runs of an optimizer."""
        content = self._content()
        content["runs"] = [run for run in content["runs"] if self._of(run)[0] != name]
        if self.file.is_file():
            self._write(content)

    def _of(self, run: Mapping[str, Any]) -> Any:
        return self._cell(*(run[name] for name in self._cell._fields))

    def _content(self) -> dict[str, Any]:
        if not self.file.is_file():
            return {"task": self.task, "info": [], "runs": []}
        content = json.loads(self.file.read_text(encoding="utf-8"))
        if self.task is not None and content["task"] != self.task:
            raise SystemExit(
                f"{self.file} holds runs of {content['task']}, not of {self.task}: choose another "
                "folder with --out"
            )
        return content

    def _write(self, content: Mapping[str, Any]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(
            json.dumps(run, allow_nan=False, ensure_ascii=False) for run in content["runs"]
        )
        head = json.dumps({"task": content["task"], "info": content["info"]}, indent=1)
        temporary = self.file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(f'{head[:-2]},\n "runs": [\n{lines}\n]}}\n', encoding="utf-8")
        temporary.replace(self.file)


def made_by(module: str, **more: Any) -> dict[str, Any]:
    """The machine, the versions, the command and the commit of the runs of this process."""
    return {
        "command": command_line(module),
        "commit": git("rev-parse", "--short=12", "HEAD"),
        **more,
        "machine": machine(),
        "versions": versions(),
    }


def _with_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_nan(x) for x in value]
    return math.nan if value is None else value


def _rounded(value: Any) -> Any:
    """Six digits are more than a run means, and JSON has no NaN."""
    if isinstance(value, Mapping):
        return {name: _rounded(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return float(f"{value:.6g}") if math.isfinite(value) else None
