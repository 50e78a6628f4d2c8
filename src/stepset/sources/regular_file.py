"""Reads regular files of limited size without following links. Detects whether a file changes while it is read.

Another program can replace a directory by a link while stepset reads the directory. Therefore each directory on the
path of a file is opened relative to the directory above it, and no link is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path

from stepset.directory_trees import Cursor, ReplacedError
from stepset.regular_files import NotRegularError, open_regular


class ChangedError(Exception):
    """The file changed while it was read."""


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Adds the path to an OSError of a Cursor. Converts a ReplacedError into a ChangedError."""
    try:
        yield
    except ReplacedError as error:
        raise ChangedError(str(path)) from error
    except OSError as error:
        error.filename = str(path)
        raise


def read_regular(path: Path, limit: int, cursor: Cursor | None = None) -> bytes | None:
    """Returns the content of a regular file.

    Returns None if the file is larger than `limit` bytes, or if `path` is a symbolic link, a directory or another
    special file.

    Args:
        path: an absolute path. The directories of the path must not be links.
        limit: the maximum number of bytes.
        cursor: a cursor that started at the root directory. The function moves the cursor to the directory of the file.
            A caller that reads many files passes the same cursor each time.

    Raises:
        ChangedError: the file changed while it was read, or a directory of the path is a link.
        OSError: the file cannot be read.
    """
    assert path.is_absolute()
    with errors_of(path), nullcontext(cursor) if cursor else closing(Cursor(Path("/"))) as directory:
        directory.move_to(path.parts[1:-1])
        try:
            opened = open_regular(path, dir_fd=directory.fd)
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
