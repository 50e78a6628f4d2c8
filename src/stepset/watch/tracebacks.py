"""Reads Python tracebacks in the last lines of ranks.

Finds running ranks whose output ends with a traceback. Such a rank has failed, but has not exited. Finds the frame of
the user's code in the traceback of a failed rank.

All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stepset.run_status import RankStatus, RunStatus
from stepset.watch.crash import in_library
from stepset.watch.lines import without_rank_mark

EXITING = 5.0
"""The number of seconds in which a rank normally exits after it has printed a traceback."""
_HEAD = "Traceback (most recent call last):"
_IGNORED = "Exception ignored "
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|\Z)")
_FRAME = re.compile(r'\s+File "([^"]{1,500})", line (\d{1,9})(?:, in (.{1,200}))?\s*\Z')
_MARKERS = re.compile(r"[\s~^]*\Z")
"""Matches the line below a source line. This line marks a part of the source line."""
_CODE = 200
"""The maximum number of characters of a source line in a frame."""
_WIDTH = 400
"""The number of characters of an error that are compared. The agent shortens lines to this length."""
_PROGRAM = "_stepset_main"
"""The function of a generated program that calls the user's function."""
_SEARCHED = 4096


def stuck_note(source: str) -> str:
    """Returns the note about a rank of an MPI job that has printed a traceback and has not exited."""
    return (
        f"{source} printed a traceback and has not exited, so the other ranks may wait for it; if the script uses"
        " mpi4py, start it with python -m mpi4py"
    )


def stuck_rank(status: RunStatus, tail: Callable[[str], Sequence[str]], now: float) -> tuple[RankStatus, str] | None:
    """Returns a running rank whose output ends with a traceback, and the line of the exception.

    Returns None if there is no such rank. If there are several, returns the rank that printed its traceback first.

    Args:
        tail: a function that returns the last lines of a source.
        now: the current time, in seconds since the epoch. Ranks that printed a line in the last `EXITING` seconds are
            ignored.
    """
    found = []
    for row in status.ranks:
        at = row.last_line_at
        if row.rank is None or row.state != "Running" or at is None or now - at < EXITING:
            continue
        lines = without_ignored([without_rank_mark(row.source, line) for line in tail(row.source)])
        if error := final_exception(lines):
            found.append((at, row.rank, row, error))
    return min(found, key=lambda each: each[:2])[2:] if found else None


def final_exception(lines: Sequence[str]) -> str:
    """Returns the exception line of the Python traceback that is the end of `lines`, or "" if there is none.

    >>> final_exception([_HEAD, '  File "t.py", line 1, in <module>', "ValueError: bad"])
    'ValueError: bad'
    >>> final_exception([_HEAD, '  File "t.py", line 1, in <module>', "ValueError: bad", "epoch 2"])
    ''
    """
    printed = [line for line in lines if line.strip()]
    if len(printed) < 3 or not _EXCEPTION.match(printed[-1][:_SEARCHED]):
        return ""
    above = next((line for line in reversed(printed[:-1]) if not line[0].isspace()), "")
    # The first line of the traceback may begin with a progress bar.
    return printed[-1] if above.endswith(_HEAD) and not printed[-2].endswith(_HEAD) else ""


def after_tracebacks(lines: Sequence[str]) -> Sequence[str]:
    """Returns the lines after the last Python traceback. The beginning of the traceback may be missing.

    >>> after_tracebacks(['  File "t.py", line 1, in <module>', "ValueError: bad", "epoch 2"])
    ['epoch 2']
    """
    ends = (
        at
        for at in reversed(range(len(lines)))
        if _EXCEPTION.match(lines[at][:_SEARCHED]) and (not at or lines[at - 1][:1].isspace())
    )
    return lines[next(ends, -1) + 1 :]


def without_ignored(lines: list[str]) -> list[str]:
    """Returns the lines without the exceptions that Python has ignored, and without their tracebacks.

    >>> without_ignored(["Exception ignored in: <f>", _HEAD, '  File "t.py", line 1, in f', "KeyError: 1", "bye"])
    ['bye']
    """
    if not any(_IGNORED in line for line in lines):
        return lines
    from stepset.agent import diagnosis  # most runs do not need this import, which takes milliseconds

    return diagnosis.without_ignored("\n".join(lines)).split("\n")


def without_markers(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the lines without the markers at the beginning, whose source line is missing.

    >>> without_markers(("    ^^^^", '  File "t.py", line 1, in f', "    ~~~^^^"))
    ('  File "t.py", line 1, in f', '    ~~~^^^')
    """
    return lines[next((at for at, line in enumerate(lines) if not _MARKERS.match(line)), len(lines)) :]


def user_frame(error: str, lines: Sequence[str]) -> str:
    """Returns the innermost frame that is not in a library, from the traceback of an error.

    Returns "" if the lines contain no such frame.

    Args:
        error: the line of the exception.
        lines: the last lines of the process. The beginning of the traceback may be missing.

    >>> library = '  File "/usr/lib/python3.11/a.py", line 3, in f'
    >>> lines = [_HEAD, '  File "t.py", line 1, in <module>', "    f(0)", library, "ValueError: bad"]
    >>> user_frame("ValueError: bad", lines)
    't.py, line 1, in <module>: f(0)'
    """
    start = error.strip()[:_WIDTH]
    end = next((at for at in reversed(range(len(lines))) if start and lines[at].strip()[:_WIDTH] == start), 0)
    below = ""
    for line in reversed(lines[:end]):
        if line.strip() and not line[0].isspace():
            return ""
        frame = _FRAME.match(line)
        if frame and frame[3] == _PROGRAM:
            return ""  # the generated program has raised the error, and only its own frames follow
        if frame and not in_library(frame[1]):
            place = f"{frame[1]}, line {frame[2]}" + (f", in {frame[3]}" if frame[3] else "")
            return f"{place}: {below[:_CODE]}" if below else place
        if not _MARKERS.match(line):
            below = "" if frame else line.strip()
    return ""
