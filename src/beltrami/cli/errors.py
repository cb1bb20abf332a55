"""Exit codes, and the failures that end in one line instead of a traceback."""

from __future__ import annotations

OK, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130


class BadInputError(Exception):
    """Something the user can put right; the message says what and how."""


class OutputError(Exception):
    """The system did not let us write; the message says where and why."""


class InterruptedWork(KeyboardInterrupt):
    """Ctrl-C, with a message that says what is left on disk and how to go on."""
