"""Limits the log lines that a triggerer has not read yet.

Triggers run in a separate process, which sends each line through a socket to the triggerer's main process. The main
process writes the lines to files; it reads 4 KiB of them between two queries of its database (airflow 3.3
triggerer_job_runner.py, supervisor.py). About 170 lines fill the socket, which blocks all triggers. Lines in the socket
are lost when the triggerer is killed or their trigger has ended. The kernel reports the number of unread bytes.
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
"""Seconds between two checks."""
_MAX_UNREAD = 64 * 1024
"""Maximum unread bytes when a line is written: about 50 lines by the kernel's count, a third of the socket's buffer."""
_TIMEOUT = 5.0
"""Maximum seconds to wait for space in the socket, which other triggers may take first."""


def unread() -> int:
    """Returns the kernel's count of logged bytes that were not read yet; 0 if logs do not use a socket."""
    file = log_stream()
    try:
        number = file.fileno() if file is not None else -1
        if number < 0 or sys.platform != "linux" or not stat.S_ISSOCK(os.fstat(number).st_mode):
            return 0
        waiting: int = struct.unpack("i", ioctl(number, TIOCOUTQ, bytes(4)))[0]
    except (OSError, ValueError):  # closed, or not a file
        return 0
    return waiting


async def wait_for_space() -> None:
    """Returns when a line can be written without blocking, or after `_TIMEOUT` seconds."""
    end = time.monotonic() + _TIMEOUT
    while unread() > _MAX_UNREAD and time.monotonic() < end:
        await asyncio.sleep(_POLL_INTERVAL)


async def wait_until_read(timeout: float = math.inf) -> None:
    """Returns when all logged lines have been read, or after `timeout` seconds."""
    end = time.monotonic() + timeout
    while unread() and time.monotonic() < end:
        await asyncio.sleep(_POLL_INTERVAL)
