"""Memory that was freed goes back to the system.

glibc keeps blocks of up to 32 MiB on its heap once it has seen some freed. Where tables are read
block by block, and a little is kept of each, the heap grows around what is kept: overlaps of 8,192
columns took 5.7 GB so, and 1.4 GB with blocks that are mapped one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE = 1 << 22  # bytes, from which on a block is mapped by itself


def give_back_large_blocks() -> None:
    """For the rest of the process, which is ours; where there is no glibc, nothing happens."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
