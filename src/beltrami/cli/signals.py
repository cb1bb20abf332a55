"""What signals do to a command."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM, which job schedulers send before they kill, ends the work as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours to handle there
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
