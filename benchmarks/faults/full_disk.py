"""A disk that is full while results, a journal or a checkpoint are written.

The disk is a tmpfs of a megabyte in a mount namespace of its own, with ballast that leaves a random
amount of room, so that it is full at any byte of what is written. That survives if there is an
error that names the file and no part of anything under the final name: what was there before is
still there, and once there is room, writing and going on work as if nothing had happened.
"""

import abc
import contextlib
import json
import logging
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.faults import damage, programs
from benchmarks.faults.count import LOST, Count, count
from mu2_optax.sweep import load_results, save_results, sweep

SIZE = 2**20
REFUSED = "refused by name, the old kept"
UNNAMED = "refused, the old kept"
ROOM = "had room"  # and so does not count


def write_results(folder: pathlib.Path, name: str, rates: int) -> None:
    result = sweep(damage.cell, np.logspace(-3, 0, rates), 4, progress=False)
    save_results(result, folder / name)


class Kind(abc.ABC):
    """Something that is written, and once more when something is there already."""

    def before(self, folder: pathlib.Path) -> None:  # noqa: B027
        """Writes what is there before: nothing, unless a kind says so."""

    @abc.abstractmethod
    def write(self, folder: pathlib.Path) -> None:
        """Writes what there may be no room for."""

    @abc.abstractmethod
    def read(self, folder: pathlib.Path) -> Any:
        """What is there, of which nothing may change where there was no room."""

    def read_all(self, folder: pathlib.Path) -> Any:
        """What is there in the end."""
        return self.read(folder)


class Results(Kind):
    """A file of results, replaced by a larger one."""

    def __init__(self, name: str):
        self.name = name

    def before(self, folder: pathlib.Path) -> None:
        write_results(folder, self.name, 2)

    def write(self, folder: pathlib.Path) -> None:
        write_results(folder, self.name, 150)

    def read(self, folder: pathlib.Path) -> Any:
        return load_results(folder / self.name)[""].metrics


class Journal(Kind):
    """A sweep with a journal, which goes on when there is room."""

    def write(self, folder: pathlib.Path) -> None:
        damage.swept(folder)

    def read(self, folder: pathlib.Path) -> Any:
        """Whether the last line is whole; how many there are depends on the room."""
        journal = folder / "journal.jsonl"
        return [np.bool_(not journal.exists() or journal.read_bytes()[-1:] in (b"", b"\n"))]

    def read_all(self, folder: pathlib.Path) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no line is damaged
            return damage.swept(folder)


class Checkpoint(Kind):
    """A second checkpoint after the first."""

    def __init__(self, store: Callable):
        self.store = store

    def before(self, folder: pathlib.Path) -> None:
        self.save(folder, 1)

    def write(self, folder: pathlib.Path) -> None:
        self.save(folder, 2)

    def save(self, folder: pathlib.Path, step: int) -> None:
        store = self.store(folder)
        try:
            store.save(programs.first_state() | {"step": jax.numpy.int32(step)})
        finally:
            store.close()

    def read(self, folder: pathlib.Path) -> Any:
        store = self.store(folder)
        try:
            return store.restore()
        finally:
            store.close()


# Each with about as many bytes as it needs.
KINDS = {
    "results, JSON": (Results("result.json"), 65_000),
    "results, CSV": (Results("result.csv"), 65_000),
    "journal": (Journal(), 4_100),
    "Flax's bytes": (Checkpoint(programs.BytesStore), 205_000),
    "Orbax": (Checkpoint(programs.OrbaxStore), 180_000),
}


def fill(disk: pathlib.Path, room: int) -> None:
    """Leaves about so many bytes on a disk."""
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free > room:
            file.write(bytes(4096))


def trial(kind: Kind, room: int, expected: list[bytes], disk: pathlib.Path) -> str:
    """Writes where there is little room, and again where there is; how that ended."""
    with tempfile.TemporaryDirectory(dir=disk) as name:
        folder = pathlib.Path(name)
        kind.before(folder)
        before = damage.bits(kind.read(folder))
        fill(disk, room)
        try:
            kind.write(folder)
            outcome = ROOM
        except Exception as error:
            kept = damage.bits(kind.read(folder)) == before
            outcome = (REFUSED if name in str(error) else UNNAMED) if kept else LOST
        (disk / "ballast").unlink()
        if outcome in (REFUSED, UNNAMED):
            kind.write(folder)
        return outcome if damage.bits(kind.read_all(folder)) == expected else LOST


def trials(what: str, number: int, disk: pathlib.Path) -> list[str]:
    """How so many writes ended, each with a random amount of room that was not enough."""
    kind, most = KINDS[what]
    with tempfile.TemporaryDirectory(dir=disk) as name:
        kind.before(pathlib.Path(name))
        kind.write(pathlib.Path(name))
        expected = damage.bits(kind.read_all(pathlib.Path(name)))
    rng, outcomes = random.Random(what), []
    while len(outcomes) < number:
        outcome = trial(kind, rng.randrange(most), expected, disk)
        outcomes += [outcome] if outcome != ROOM else []
    return outcomes


def measure(number: int) -> list[Count]:
    """Every kind of file that is written, in a process that may mount a disk of its own."""
    fault = "full disk"
    with tempfile.TemporaryDirectory() as disk:
        mount = f"mount -t tmpfs -o size={SIZE} tmpfs {disk} && exec"
        program = f"{sys.executable} -m benchmarks.faults.full_disk {disk} {number}"
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{mount} {program}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            return [Count(fault, what, 0, 0, f"not run: {reason}") for what in KINDS]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    return [count(fault, what, ended) for what, ended in outcomes.items()]


def main() -> None:
    disk, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    print(json.dumps({what: trials(what, number, disk) for what in KINDS}))


if __name__ == "__main__":
    main()
