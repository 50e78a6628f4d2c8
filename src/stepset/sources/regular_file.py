"""Reads regular files of limited size without following links. Detects whether a file changes while it is read."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

from stepset.regular_files import NotRegularError, open_regular


class ChangedError(Exception):
    """The file changed while it was read."""


def read_regular(path: Path, limit: int) -> bytes | None:
    """Returns the content of a regular file.

    Returns None if the file is larger than `limit` bytes, or if `path` is a symbolic link, a directory or another
    special file.

    Raises:
        ChangedError: the file changed while it was read.
        OSError: the file cannot be read.
    """
    try:
        opened = open_regular(path)
    except NotRegularError:
        return None
    with BufferedReader(opened) as file:
        before = os.fstat(file.fileno())
        if before.st_size > limit:
            return None
        content = file.read(before.st_size + 1)
        after = os.fstat(file.fileno())
    if len(content) != before.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedError(str(path))
    return content
