"""What a user sees and presses while a sweep runs: the progress bar, and Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(done: int, total: int, label: str, shown: bool) -> Iterator[Callable[[int], None]]:
    """Shows tqdm's bar, which draws in a terminal, a notebook or a log; yields its ``update``."""
    if not shown:
        yield lambda cells: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ModuleNotFoundError(
            "the progress bar needs tqdm: `pip install tqdm`, or pass `progress=False`"
        ) from error
    with tqdm(initial=done, total=total, desc=label or "sweep", unit="cell") as bar:
        yield bar.update


@contextmanager
def noting_the_first_interrupt() -> Iterator[threading.Event]:
    """Makes the first Ctrl-C only set an event; the next one does what it usually does."""
    noted = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield noted  # Ctrl-C does not come here, or is ignored, or ends the process
        return

    def note(number: int, frame: Any) -> None:
        noted.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, usual)
