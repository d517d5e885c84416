import io
import sys
import time

from mu2_optax.sweep._progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_line_is_redrawn_and_removed():
    stream = Terminal()
    bar = Progress(4, "sgd", stream=stream)
    time.sleep(0.15)  # tqdm redraws every tenth of a second
    bar.advance(2)
    bar.close()
    assert "sgd:  50%" in stream.getvalue()
    assert "2/4" in stream.getvalue()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_without_tqdm_a_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = Terminal()
    bar = Progress(4, "sgd", stream=stream)
    bar.note("compiling")
    clock[0] += 10
    bar.advance(1)
    bar.close()
    assert stream.getvalue() == "sgd: 1/4 cells, 10 s, 30 s left\n"


def test_elsewhere_a_line_comes_only_every_ten_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    bar = Progress(100, stream=stream)
    for _ in range(100):
        clock[0] += 1
        bar.advance(1)
    bar.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 9
    assert lines[0] == "sweep: 10/100 cells, 10 s, 90 s left"


def test_resumed_cells_do_not_shorten_the_estimate(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    bar = Progress(11, stream=stream)
    bar.skip(8)
    clock[0] += 10
    bar.advance(1)
    assert stream.getvalue() == "sweep: 9/11 cells, 10 s, 20 s left\n"
    terminal = Terminal()
    bar = Progress(11, stream=terminal)
    bar.skip(8)
    assert "8/11 [00:00<?" in terminal.getvalue()  # no rate yet: none of them has run now


def test_disabled_it_is_silent():
    stream = Terminal()
    bar = Progress(1, enabled=False, stream=stream)
    bar.note("compiling")
    bar.advance(1)
    bar.close()
    assert stream.getvalue() == ""
