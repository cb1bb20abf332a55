"""One process at a time, by a lock that the system takes back when its holder ends."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE = 0.1  # seconds between two tries


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Hold the lock file `path`; `waiting` is called once where another process holds it.

    Gives False on a file system without locks (some network ones), where locking has no effect.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    called = False
    with path.open("ab") as file:
        while (held := _try(file.fileno())) is None:
            if not called:
                waiting()
                called = True
            time.sleep(PAUSE)
        try:
            yield held
        finally:
            if held:
                _release(file.fileno())


if sys.platform == "win32":
    import msvcrt

    def _try(handle: int) -> bool | None:
        """True: held. None: another process has it. False: no locks here."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            return None if error.errno in (errno.EACCES, errno.EDEADLK) else False
        return True

    def _release(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try(handle: int) -> bool | None:
        """True: held. None: another process has it. False: no locks here."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        return True

    def _release(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
