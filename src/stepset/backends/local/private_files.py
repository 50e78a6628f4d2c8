"""Files and directories of runs: only their owner may read them, whatever the umask.

Another user or the training code may replace a file, so readers open only regular files and read a limited size.
"""

from __future__ import annotations

import errno
import os
from io import BufferedReader
from pathlib import Path

from stepset.regular_files import open_regular

LARGEST = 64 * 1024 * 1024
"""The maximum size of a file that is read, in bytes."""


def read_regular(path: Path) -> bytes:
    """Returns the content of a regular file.

    Raises:
        OSError: the file cannot be read, is a link or not regular, or has more than 64 MiB.
    """
    with BufferedReader(open_regular(path)) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(errno.EFBIG, f"has more than {LARGEST} bytes", str(path))
    return data


def write_private(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Writes a file of this user, whatever the umask; raises OSError, also for a link or a pipe in its place."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def open_private(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens a file and creates it if it is missing; raises OSError, also for a link, or a pipe without a reader."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)


def make_directories(path: Path) -> None:
    """Creates a directory, and its parents, for this user only; existing ones are left as they are. Raises OSError."""
    for each in reversed([each for each in (path, *path.parents) if not each.exists()]):
        each.mkdir(mode=0o700, exist_ok=True)
