"""How much of its triggers' logs a triggerer has not read yet.

Triggers run in a process of their own, which sends each line through a socket to the triggerer's main process. That
process writes them to files, and reads 4 KiB of them between two looks at its database (airflow 3.3
triggerer_job_runner.py, supervisor.py). Some 170 lines fill the socket, and then all triggers stand still. Lines in the
socket are lost when the triggerer is killed, and when their trigger has ended. The kernel knows how much is unread.
"""

from __future__ import annotations

import asyncio
import math
import os
import stat
import struct
import sys
import time
from fcntl import ioctl
from termios import TIOCOUTQ

from stepset_airflow.airflow_internals import log_stream

_LOOKS = 0.02
"""Seconds between two looks."""
_ROOM = 64 * 1024
"""Bytes that may be unread when a line is written: some 50 lines as the kernel counts, a third of what it takes."""
_PATIENCE = 5.0
"""Seconds to wait for room, which other triggers may take first."""


def unread() -> int:
    """Bytes that were logged and not read yet, as the kernel counts them; 0 if logs are not sent through a socket."""
    file = log_stream()
    try:
        number = file.fileno() if file is not None else -1
        if number < 0 or sys.platform != "linux" or not stat.S_ISSOCK(os.fstat(number).st_mode):
            return 0
        waiting: int = struct.unpack("i", ioctl(number, TIOCOUTQ, bytes(4)))[0]
    except (OSError, ValueError):  # closed, or not a file
        return 0
    return waiting


async def room() -> None:
    """Returns when a line can be written without blocking, or after `_PATIENCE`."""
    end = time.monotonic() + _PATIENCE
    while unread() > _ROOM and time.monotonic() < end:
        await asyncio.sleep(_LOOKS)


async def all_read(most: float = math.inf) -> None:
    """Returns when all that was logged has been read, or after `most` seconds."""
    end = time.monotonic() + most
    while unread() and time.monotonic() < end:
        await asyncio.sleep(_LOOKS)
