"""SIGKILL at random moments: what was killed goes on, and ends bit for bit as if it had not been.

The moments are random between the start of a program and a little after it has begun to work, so
that imports, compiles, steps and the writing of checkpoints are all hit. A kill is not a power cut:
what the program had written is still there.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from benchmarks.faults.count import LOST, Count, count

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITLES = {
    "orbax": "training, checkpoints by Orbax",
    "bytes": "training, checkpoints in Flax's bytes",
    "sweep": "a sweep",
}


# Kills come within so many seconds of the time when a program has begun to work.
WORKING = {"orbax": 3.0, "bytes": 1.0, "sweep": 1.0}


def start(program: str, folder: pathlib.Path) -> subprocess.Popen:
    """Starts a program; its first line says where it goes on from."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.faults.programs", program, str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def uninterrupted(program: str) -> bytes:
    """What a program ends with if it is left alone."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(program, pathlib.Path(folder))
        process.communicate(timeout=600)
        return pathlib.Path(folder, "final").read_bytes()


def in_a_write(folder: pathlib.Path) -> bool:
    """Whether something was left that is not finished."""
    journal = folder / "journal.jsonl"
    if journal.exists():
        return not journal.read_bytes().endswith(b"\n")
    names = [file.name for pattern in ("*", "orbax/*") for file in folder.glob(pattern)]
    return any(".partial" in name or "checkpoint-tmp" in name for name in names)


def kill_at_random(program: str, folder: pathlib.Path, rng: random.Random) -> str | None:
    """Runs a program until a random moment; how it was killed, or None if it ended before."""
    with start(program, folder) as process:
        if rng.random() < 0.1:
            moment = "while starting"
            time.sleep(rng.uniform(0, 2))
        else:
            moment = "while working"
            process.stdout.readline()
            time.sleep(rng.uniform(0, WORKING[program]))
            if rng.random() < 0.5:  # with its next checkpoint, if it writes any
                patience = time.monotonic() + 1
                while not in_a_write(folder) and time.monotonic() < patience:
                    pass
        if process.poll() is not None:
            return None
        process.kill()
    if process.returncode == 0:  # it was quicker
        return None
    return "in the middle of a write" if in_a_write(folder) else moment


def kills(program: str, number: int, seed: int = 0) -> Count:
    """Kills a program again and again; when a run is through, the next one begins.

    Args:
      program: One of ``TITLES``.
      number: How many kills.
      seed: For the moments.
    """
    rng, expected = random.Random(f"{program} {seed}"), uninterrupted(program)
    outcomes: list[str] = []
    while len(outcomes) < number:
        of_this_run: list[str] = []
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            while len(outcomes) + len(of_this_run) < number and not (folder / "final").exists():
                killed = kill_at_random(program, folder, rng)
                if killed:
                    of_this_run.append(killed)
                elif not (folder / "final").exists():
                    break  # it ended by itself, without a result
            if not (folder / "final").exists():
                start(program, folder).communicate(timeout=600)
            final = folder / "final"
            whole = final.exists() and final.read_bytes() == expected
        outcomes += of_this_run if whole else [LOST] * max(1, len(of_this_run))
    return count("SIGKILL", TITLES[program], outcomes)


def measure(number: int) -> list[Count]:
    """Kills of training, half with each kind of checkpoint, and as many of a sweep."""
    half = number // 2
    return [kills("orbax", number - half), kills("bytes", half), kills("sweep", number)]
