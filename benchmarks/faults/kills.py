"""SIGKILL at random moments: what was killed goes on, and ends bit for bit as if it had not been.

The moments are random among the steps of a program and within a step; one in ten is before the
first step, and half of the others wait for a checkpoint that is being written. A kill is not a
power cut: what the program had written is still there. The programs are processes of a server that
has done their imports, and has not used JAX.
"""

import multiprocessing
import pathlib
import random
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.faults import programs
from benchmarks.faults.count import LOST, Count, count

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["benchmarks.faults.programs", "flax.serialization", "orbax.checkpoint"]
TITLES = {
    "orbax": "training, Orbax, by steps",
    "bytes": "training, Flax's bytes, by steps",
    "sweep": "a sweep, by cells",
}


# Kills come after up to so many steps, or cells.
STEPS = {"orbax": 4, "bytes": 20, "sweep": 30}


def start(program: str, folder: pathlib.Path) -> tuple[Any, Connection]:
    """Starts a program: the process, and where it says that a step is done."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=programs.run, args=(program, folder, sender))
    process.start()
    sender.close()
    return process, receiver


def run_to_the_end(program: str, folder: pathlib.Path) -> bytes | None:
    """What a program ends with if it is left alone; None if nothing."""
    process, _ = start(program, folder)
    process.join(600)
    final = folder / "final"
    return final.read_bytes() if final.exists() else None


def lines(journal: pathlib.Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def wait_for(process: Any, receiver: Connection, folder: pathlib.Path, steps: int) -> None:
    """Waits until a program has done so many steps, or has ended."""
    journal, before = folder / "journal.jsonl", lines(folder / "journal.jsonl")
    while steps > 0 and process.is_alive():
        if receiver.poll(0.002):
            try:
                receiver.recv()
            except EOFError:
                return
            steps -= 1
        if lines(journal) >= before + steps and journal.exists():
            return


def in_a_write(folder: pathlib.Path) -> bool:
    """Whether something was left that is not finished."""
    journal = folder / "journal.jsonl"
    if journal.exists():
        return not journal.read_bytes().endswith(b"\n")
    names = [file.name for pattern in ("*", "orbax/*") for file in folder.glob(pattern)]
    return any(".partial" in name or "checkpoint-tmp" in name for name in names)


def kill_at_random(program: str, folder: pathlib.Path, rng: random.Random) -> str | None:
    """Runs a program until a random moment; when that was, or None if it ended before."""
    moment, (process, receiver) = "while starting", start(program, folder)
    if rng.random() < 0.1:
        time.sleep(rng.uniform(0, 0.5))
    else:
        begun = time.monotonic()
        wait_for(process, receiver, folder, 1)
        moment, first = "while working", time.monotonic() - begun
        wait_for(process, receiver, folder, rng.randrange(STEPS[program]))
        time.sleep(rng.uniform(0, 0.02 * first))
        patience = time.monotonic() + (10 if rng.random() < 0.5 else 0)
        while time.monotonic() < patience and process.is_alive() and not in_a_write(folder):
            if program == "sweep":
                break  # writes a line at a time, which is there or not
    process.kill()
    process.join()
    if process.exitcode == 0:  # it was quicker
        return None
    return "in the middle of a write" if in_a_write(folder) else moment


def kills(program: str, number: int, seed: int = 0) -> Count:
    """Kills a program again and again; when a run is through, the next one begins.

    Args:
      program: One of ``TITLES``.
      number: How many kills.
      seed: For the moments.
    """
    rng, outcomes = random.Random(f"{program} {seed}"), []
    with tempfile.TemporaryDirectory() as name:
        expected = run_to_the_end(program, pathlib.Path(name))
    while len(outcomes) < number:
        killed: list[str] = []
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            while len(outcomes) + len(killed) < number:
                moment = kill_at_random(program, folder, rng)
                if moment is None:
                    break
                killed.append(moment)
            whole = run_to_the_end(program, folder) == expected
        outcomes += killed if whole else [LOST] * len(killed)
    return count("SIGKILL", TITLES[program], outcomes)


def measure(number: int) -> list[Count]:
    """Kills of training, half with each kind of checkpoint, and as many of a sweep."""
    half = number // 2
    return [kills("orbax", number - half), kills("bytes", half), kills("sweep", number)]
