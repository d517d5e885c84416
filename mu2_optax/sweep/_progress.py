"""Progress on stderr that knows when nobody is watching."""

import sys
import time
from typing import Any, TextIO


class Progress:
    """Counts finished cells.

    On a terminal it is tqdm's bar, removed at the end. Elsewhere (a log file, a CI job), or without
    tqdm, it is a plain line at most every ten seconds, and nothing for a sweep that ends sooner.

    Args:
      total: The number of cells.
      label: What is running, shown before the count.
      enabled: Whether to show anything.
      stream: Where to write; stderr if None.
    """

    def __init__(
        self, total: int, label: str = "", enabled: bool = True, stream: TextIO | None = None
    ):
        self._stream = sys.stderr if stream is None else stream
        self._total, self._label, self._enabled = total, label or "sweep", enabled
        self._done = self._skipped = 0
        self._start = self._shown = time.monotonic()
        self._bar = self._make_bar() if enabled and self._stream.isatty() else None

    def skip(self, cells: int) -> None:
        """Counts cells that were finished before, by a run that is being resumed."""
        self._skipped += cells
        self._done += cells
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._done
            self._bar.refresh()

    def advance(self, cells: int) -> None:
        """Counts cells that have just finished."""
        self._done += cells
        if self._bar is not None:
            self._bar.set_postfix_str("", refresh=False)
            self._bar.update(cells)
            return
        now = time.monotonic()
        if self._enabled and now - self._shown >= 10 and self._done < self._total:
            self._shown = now
            print(self._line(now), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Shows what is going on before the first cell is finished."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        """Removes the bar from a terminal."""
        if self._bar is not None:
            self._bar.close()

    def _make_bar(self) -> Any:
        """A bar of tqdm, or None where it is not installed."""
        try:
            from tqdm import tqdm
        except ImportError:
            return None
        return tqdm(
            total=self._total, desc=self._label, unit="cell", leave=False, file=self._stream
        )

    def _line(self, now: float) -> str:
        fresh = self._done - self._skipped
        elapsed = now - self._start
        left = elapsed / fresh * (self._total - self._done) if fresh else 0.0
        return (
            f"{self._label}: {self._done}/{self._total} cells, {elapsed:.0f} s, {left:.0f} s left"
        )
