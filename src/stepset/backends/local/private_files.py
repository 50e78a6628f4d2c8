"""Creates and reads files and directories of runs.

Only the owner may read the files and directories, whatever the umask is.

Another user or the training code can replace a file. Therefore readers open only regular files, and limit the number of
bytes that they read.
"""

from __future__ import annotations

import errno
import os
from io import BufferedReader
from pathlib import Path

from stepset.regular_files import open_regular

LARGEST = 64 * 1024 * 1024
"""The maximum size of a file that can be read, in bytes."""


def read_regular(path: Path) -> bytes:
    """Returns the content of a regular file.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than 64 MiB. Links are not followed.
    """
    with BufferedReader(open_regular(path)) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(errno.EFBIG, f"has more than {LARGEST} bytes", str(path))
    return data


def write_private(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Writes a file that only this user may read, whatever the umask is.

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


def make_private(path: Path) -> None:
    """Creates a directory that only this user may access, whatever the umask is.

    If the directory exists and belongs to this user, the permissions of other users are removed. Raises OSError in the
    same cases as `check_owner`.
    """
    check_owner(path)
    make_directories(path)
    check_owner(path)
    about = path.stat()
    if about.st_uid == os.geteuid() and about.st_mode & 0o077:
        path.chmod(0o700)


def check_owner(path: Path) -> None:
    """Raises OSError if a directory exists and belongs to another user, because that user could replace its files.

    Root may use the directory of another user, with one exception. If a user has started this process through sudo,
    root may not use a directory inside a directory of this user. Without this exception, the user's directory could
    contain files that belong to root.
    """
    user = os.geteuid()
    sudo = os.environ.get("SUDO_UID", "") if user == 0 else ""
    for above in (path, *path.parents) if sudo not in ("", "0") else ():
        if above.exists() and str(above.stat().st_uid) == sudo:
            raise OSError(errno.EPERM, f"sudo runs this as root, and {above} belongs to user {sudo}; use sudo -H")
    if path.exists() and user not in (0, path.stat().st_uid):
        raise OSError(errno.EPERM, "it belongs to another user", str(path))
