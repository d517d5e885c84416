import io

from mu2_optax.sweep.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_line_is_redrawn_and_removed():
    stream = Terminal()
    bar = Progress(4, "sgd", stream=stream)
    bar.advance(2)
    bar.close()
    assert "sgd: 2/4 cells" in stream.getvalue()
    assert "[############............]" in stream.getvalue()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r")


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
    stream = Terminal()
    bar = Progress(10, stream=stream)
    bar.skip(8)
    clock[0] += 5
    bar.advance(1)
    assert "9/10 cells, 5 s, 5 s left" in stream.getvalue()


def test_disabled_it_is_silent():
    stream = Terminal()
    bar = Progress(1, enabled=False, stream=stream)
    bar.note("compiling")
    bar.advance(1)
    bar.close()
    assert stream.getvalue() == ""
