"""A progress bar on stderr that knows when nobody is watching."""

import sys
import time
from typing import TextIO


class Progress:
    """Counts finished cells.

    On a terminal it redraws one line. Elsewhere (a log file, a CI job) it writes a plain line at
    most every ten seconds, and nothing for a sweep that ends sooner.

    Args:
      total: The number of cells.
      label: What is running, shown before the bar.
      enabled: Whether to show anything.
      stream: Where to write; stderr if None.
    """

    def __init__(
        self, total: int, label: str = "", enabled: bool = True, stream: TextIO | None = None
    ):
        self._stream = sys.stderr if stream is None else stream
        self._total, self._label, self._enabled = total, label or "sweep", enabled
        self._tty = enabled and self._stream.isatty()
        self._done = self._skipped = 0
        self._start = self._shown = time.monotonic()
        self._width = 0

    def skip(self, cells: int) -> None:
        """Counts cells that were finished before, by a run that is being resumed."""
        self._skipped += cells
        self.advance(cells)

    def advance(self, cells: int) -> None:
        """Counts cells that have just finished."""
        self._done += cells
        now = time.monotonic()
        if self._tty:
            self._draw(now)
        elif self._enabled and now - self._shown >= 10 and self._done < self._total:
            self._shown = now
            print(self._line(now), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Shows what is going on before the first cell is finished."""
        if self._tty:
            self._write(f"{self._label}: {text}")

    def close(self) -> None:
        """Removes the bar from a terminal."""
        if self._tty:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _draw(self, now: float) -> None:
        filled = 24 * self._done // self._total
        self._write(f"{self._line(now)} [{'#' * filled}{'.' * (24 - filled)}]")

    def _line(self, now: float) -> str:
        fresh = self._done - self._skipped
        elapsed = now - self._start
        left = elapsed / fresh * (self._total - self._done) if fresh else 0.0
        return (
            f"{self._label}: {self._done}/{self._total} cells, {elapsed:.0f} s, {left:.0f} s left"
        )

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)
