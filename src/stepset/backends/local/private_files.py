"""Creates and reads files and directories of runs.

For every umask, only the owner may read the files and directories.

Another user or the training code can replace a file. Therefore readers open only regular files, and limit the number of
bytes that they read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stepset.regular_files import read_limited
from stepset.trusted_path import check_path

LARGEST = 64 * 1024 * 1024
"""The maximum size of a file that can be read, in bytes."""


def read_regular(path: Path) -> bytes:
    """Returns the content of a regular file.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than 64 MiB. Links are not followed.
    """
    return read_limited(path, LARGEST)


def write_private(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Writes a file that only this user may read, for every umask.

    Raises OSError if the file cannot be written, or if it is a link or a pipe.
    """
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def open_private(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens a file. Creates the file if it is missing.

    Raises OSError if the file cannot be opened, or if it is a link or a pipe without a reader.
    """
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)


def make_directories(path: Path) -> None:
    """Creates a directory and its missing parents for this user only. Does not change existing directories.

    Raises OSError if a directory cannot be created.
    """
    for each in reversed([each for each in (path, *path.parents) if not each.exists()]):
        each.mkdir(mode=0o700, exist_ok=True)


def make_private(path: Path, variable: str) -> None:
    """Creates a directory that only this user may access, for every umask.

    Raises OSError if the directory cannot be created. See `check_private` for the arguments and the other errors.
    """
    check_private(path, variable)
    make_directories(path)
    check_private(path, variable)  # another user may have created the directory in the meantime


def check_private(path: Path, variable: str) -> None:
    """Removes the permissions of other users from a directory of this user, if the directory exists.

    Args:
        variable: the environment variable that selects the path, for error messages.

    Raises:
        InfrastructureError: another user could replace the directory.
    """
    check_path(path.parent, variable)
    with suppress(FileNotFoundError, NotADirectoryError):
        about = path.stat()
        if about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.chmod(0o700)
    check_path(path, variable)
