"""Limits the number of log lines in the socket between the triggers and the main process of the triggerer.

Triggers run in a separate process. This process sends each log line through a socket to the main process of the
triggerer. The main process writes the line to a file. The main process alternates between querying the database and
reading 4 KiB from the socket (airflow 3.3 triggerer_job_runner.py, supervisor.py). About 170 lines fill the socket.

If the socket is full, logging blocks all triggers. If the triggerer is killed, the lines in the socket are lost. If a
trigger finishes, the unread lines of this trigger are lost. Therefore the functions of this module query the kernel for
the number of unread bytes, and wait until the number is small enough.
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

_POLL_INTERVAL = 0.02
"""Seconds between two checks of the number of unread bytes."""
_MAX_UNREAD = 64 * 1024
"""Maximum number of unread bytes when a line is written.

This number corresponds to about 50 lines.
"""
_TIMEOUT = 5.0
"""Maximum seconds that a trigger waits for space in the socket. Other triggers may use the space in the meantime."""


def unread() -> int:
    """Returns the number of logged bytes that the main process has not read.

    The kernel reports this number. The number is 0 if this process does not log to a socket.
    """
    file = log_stream()
    try:
        number = file.fileno() if file is not None else -1
        if number < 0 or sys.platform != "linux" or not stat.S_ISSOCK(os.fstat(number).st_mode):
            return 0
        waiting: int = struct.unpack("i", ioctl(number, TIOCOUTQ, bytes(4)))[0]
    except (OSError, ValueError):  # the stream is closed, or it is not a file
        return 0
    return waiting


async def wait_for_space() -> None:
    """Waits at most `_TIMEOUT` seconds until a line can be written without blocking."""
    end = time.monotonic() + _TIMEOUT
    while unread() > _MAX_UNREAD and time.monotonic() < end:
        await asyncio.sleep(_POLL_INTERVAL)


async def wait_until_read(timeout: float = math.inf) -> None:
    """Waits at most `timeout` seconds until the main process has read all logged lines."""
    end = time.monotonic() + timeout
    while unread() and time.monotonic() < end:
        await asyncio.sleep(_POLL_INTERVAL)
