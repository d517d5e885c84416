"""Progress on stderr that knows when nobody is watching."""

import os
import shutil
import sys
import threading
import time
from typing import TextIO


class Progress:
    """Counts finished cells, and says which are running and how long it will take.

    On a terminal it is one line, redrawn a few times a second and removed at the end. Elsewhere
    (a log file, a CI job) it is a plain line at most every ten seconds, and nothing for a sweep
    that ends sooner. ``label`` says what is running; ``stream`` is stderr if None.
    """

    def __init__(
        self, total: int, label: str = "", enabled: bool = True, stream: TextIO | None = None
    ):
        self._stream = sys.stderr if stream is None else stream
        self._total, self._label, self._enabled = total, label or "sweep", enabled
        self._done = self._skipped = self._width = 0
        self._note, self._running = "", list[str]()
        self._start = self._last_logged = self._latest = time.monotonic()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._live = enabled and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        if self._live:
            self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticker.start()

    def skip(self, cells: int) -> None:
        """Counts cells that were finished before, by a run that is being resumed."""
        self._skipped += cells
        self._done += cells

    def start(self, cells: str) -> None:
        """Notes that cells are running; of several, those that started first are shown."""
        if not self._running and self._done == self._skipped:
            self._start = self._latest = time.monotonic()  # tracing and compiling do not count
        self._note = ""
        self._running.append(cells)

    def advance(self, cells: int, which: str = "") -> None:
        """Counts cells that have just finished; ``which`` is what `start` was told."""
        self._done += cells
        self._latest = now = time.monotonic()
        if which in self._running:
            self._running.remove(which)
        logged = self._enabled and not self._live
        if logged and now - self._last_logged >= 10 and self._done < self._total:
            self._last_logged = now
            print(self._line(now), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Shows what is going on before the first cell runs."""
        self._note = text

    def clear(self) -> None:
        """Removes the line from a terminal, so that something else can be printed there."""
        with self._lock:
            if self._width:
                print("\r" + " " * self._width, end="\r", file=self._stream, flush=True)
                self._width = 0

    def close(self) -> None:
        """Removes the line for good."""
        if self._live:
            self._closed.set()
            self._ticker.join()
            self.clear()

    def _tick(self) -> None:
        """Draws the line until it is closed."""
        while not self._closed.wait(0.2):
            line = self._line(time.monotonic())[: shutil.get_terminal_size().columns - 1]
            with self._lock:
                rest = " " * (self._width - len(line))
                print(f"\r{line}{rest}", end="", file=self._stream, flush=True)
                self._width = len(line)

    def _line(self, now: float) -> str:
        parts = [f"{self._label}: {self._done}/{self._total} cells", *self._running[:1]]
        if self._note:
            parts.append(self._note)
        parts.append(_clock(now - self._start))
        fresh = self._done - self._skipped
        if fresh:
            per_cell = (self._latest - self._start) / fresh
            left = per_cell * (self._total - self._done) - (now - self._latest)
            parts.append(f"{_clock(max(left, 0.0))} left")
        return ", ".join(parts)


def _clock(seconds: float) -> str:
    """A time to be read at a glance.

    Examples:
      >>> _clock(7.0), _clock(65.0), _clock(3 * 3600 + 120.0)
      ('7 s', '1:05 min', '3:02 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    units = int(seconds) if seconds < 3600 else int(seconds / 60)
    return f"{units // 60}:{units % 60:02} {'min' if seconds < 3600 else 'h'}"
