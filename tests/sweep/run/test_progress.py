import io
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from mu2_optax.sweep import sweep
from mu2_optax.sweep._run import progress
from mu2_optax.sweep._run.progress import Progress


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The seconds of the clock, which stands still unless a test moves it."""
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextmanager
def on_a_terminal():
    """The line of four cells, and the terminal that it is drawn on."""
    stream = Terminal()
    with closing(Progress(4, "sgd", stream=stream)) as bar:
        yield bar, stream


def wait_for(stream, text, after="\r"):
    """Waits until the line has been drawn with this text in it, after another one."""
    end = time.monotonic() + 300
    while text not in stream.getvalue().split(after)[-1]:
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.02)


def test_on_a_terminal_one_line_is_redrawn_and_removed():
    with on_a_terminal() as (bar, stream):
        bar.note("compiling")
        wait_for(stream, "sgd: 0/4 cells, compiling, 0 s")
        bar.start("learning rate 0.1, seed 0")
        bar.start("learning rate 1, seed 0")
        wait_for(stream, "sgd: 0/4 cells, learning rate 0.1, seed 0, 0 s")
        bar.advance(1, "learning rate 0.1, seed 0")
        wait_for(stream, "sgd: 1/4 cells, learning rate 1, seed 0, 0 s, ")
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r")
    assert stream.getvalue().split("\r")[-2].strip() == ""  # overwritten with spaces
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_line_is_no_longer_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with on_a_terminal() as (bar, stream):
        bar.start("learning rate 0.0001 to 10000, seed 0 to 100")
        wait_for(stream, "learning rate")
    assert max(map(len, stream.getvalue().split("\r"))) == 39


def test_what_is_left_of_a_longer_line_is_wiped_out():
    with on_a_terminal() as (bar, stream):
        bar.note("a long note")
        wait_for(stream, "a long note")
        bar.note("")
        wait_for(stream, "cells, 0 s", after="a long note")
    lines = stream.getvalue().split("\r")
    after = next(i for i, line in enumerate(lines) if "note" in line and "note" not in lines[i + 1])
    assert len(lines[after + 1]) == len(lines[after])


def test_the_line_makes_room_for_a_warning():
    with on_a_terminal() as (bar, stream):
        wait_for(stream, "sgd")
        bar.clear()
        assert stream.getvalue().endswith(" \r")


def test_a_terminal_that_cannot_go_back_gets_plain_lines(monkeypatch, clock):
    monkeypatch.setenv("TERM", "dumb")
    with on_a_terminal() as (bar, stream):
        bar.note("compiling")
        clock[0] += 100  # which does not count
        bar.start("learning rate 1, seed 0")
        bar.start("learning rate 2, seed 0")
        clock[0] += 70
        bar.advance(1, "learning rate 1, seed 0")
    told = "sgd: 1/4 cells, learning rate 2, seed 0, 1:10 min, 3:30 min left\n"
    assert stream.getvalue() == told


def test_elsewhere_a_line_comes_only_every_ten_seconds(clock):
    stream = io.StringIO()
    bar = Progress(100, stream=stream)
    for _ in range(100):
        clock[0] += 1
        bar.advance(1)
    bar.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 9
    assert lines[0] == "sweep: 10/100 cells, 10 s, 1:30 min left"


def test_resumed_cells_do_not_shorten_the_estimate(clock):
    stream = io.StringIO()
    bar = Progress(11, stream=stream)
    bar.skip(8)
    clock[0] += 10
    bar.advance(1)
    assert stream.getvalue() == "sweep: 9/11 cells, 10 s, 20 s left\n"


def test_disabled_it_is_silent():
    stream = Terminal()
    bar = Progress(1, enabled=False, stream=stream)
    bar.note("compiling")
    bar.advance(1)
    bar.close()
    assert stream.getvalue() == ""


def test_a_sweep_says_which_rates_and_seeds_are_running(monkeypatch):
    told = []
    monkeypatch.setattr(Progress, "start", lambda self, cells: told.append(cells))
    train = lambda learning_rate, key: {"loss": learning_rate}
    sweep(train, [0.1, 10.0], seeds=3, strategy="vmap", chunk_size=6)
    assert told == ["learning rate 0.1 to 10, seed 0 to 2"]
    told.clear()
    grid = {"learning_rate": [0.5], "beta": [0.9, 0.99]}
    sweep(lambda learning_rate, beta, key: {"loss": beta}, grid, seeds=[7], strategy="loop")
    assert told == ["learning rate 0.5, beta 0.9, seed 7", "learning rate 0.5, beta 0.99, seed 7"]
