"""The exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code of the command line."""

    SUCCESS = 0
    TRAINING_FAILED = 1
    BAD_INPUT = 2
    INFRASTRUCTURE = 3
    TIMED_OUT = 4
    INTERRUPTED = 130
