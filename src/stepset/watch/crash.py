"""Reads the stack that Python's faulthandler prints when a signal such as SIGSEGV terminates a process.

All functions are pure. Source: CPython 3.8 to 3.14, Python/traceback.c and Modules/faulthandler.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

FATAL = "Fatal Python error: "
"""The beginning of the line that faulthandler prints before the stack."""
_EXTENSIONS = "Extension modules: "
_FRAME = re.compile(r'  File "([^"]{1,500})", line \d{1,9} in \S')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[.\d]*/|<")


def in_library(path: str) -> bool:
    """Returns whether the file of a frame belongs to an installed package or to Python itself."""
    return _LIBRARY.search(path) is not None


def without_extensions(lines: Sequence[str]) -> tuple[str, ...]:
    """Returns the lines without the list of extension modules, which is long and does not describe the crash.

    >>> without_extensions(['  File "train.py", line 8 in step', "Extension modules: numpy.random.mtrand (total: 1)"])
    ('  File "train.py", line 8 in step',)
    """
    return tuple(line for line in lines if not line.startswith(_EXTENSIONS))


def with_first_frame(error: str, lines: Sequence[str]) -> str:
    """Returns the error of a crash with the innermost frame that is neither in a library nor in Python itself.

    Returns `error` unchanged if it reports no crash, or if the lines contain no such frame.

    Args:
        error: the line with the error.
        lines: the last lines of the process.

    >>> stack = ['  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at']
    >>> with_first_frame("Fatal Python error: Aborted", [*stack, '  File "train.py", line 8 in step'])
    'Fatal Python error: Aborted: File "train.py", line 8 in step'
    """
    if not error.startswith(FATAL):
        return error
    start = next((at for at in reversed(range(len(lines))) if lines[at].startswith(FATAL)), 0)
    for line in lines[start:]:  # faulthandler may have printed the stacks of other times before
        frame = _FRAME.match(line)
        if frame and not in_library(frame.group(1)):
            return f"{error}: {line.strip()}"
    return error
