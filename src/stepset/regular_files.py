"""Opens and reads only regular files, and states the remedy if a file is missing.

Opening a pipe waits for a writer, and opening a device can have side effects.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path

_MOST_NAMES = 2_000
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # a pipe may replace the file between the check and os.open
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class NotRegularError(OSError):
    """The file is a link, a pipe, a device or a directory."""


def open_regular(path: Path, *, follow_links: bool = False, dir_fd: int | None = None) -> FileIO:
    """Opens a regular file for reading, without a buffer.

    Args:
        follow_links: whether the last part of the path may be a link to a regular file.
        dir_fd: the descriptor of the directory that contains the file. If given, only the last part of `path` is used.

    Raises:
        NotRegularError: the file is not regular.
        OSError: the file cannot be read.
    """
    place = path if dir_fd is None else path.name
    _check(os.stat(place, dir_fd=dir_fd, follow_symlinks=follow_links), path)
    flags = _FLAGS | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    file = FileIO(os.open(place, flags, dir_fd=dir_fd))
    try:
        _check(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def read_limited(path: Path, limit: int, *, follow_links: bool = False) -> bytes:
    """Returns the content of a regular file.

    Raises OSError if the file cannot be read, is not regular, or has more than `limit` bytes.
    """
    with BufferedReader(open_regular(path, follow_links=follow_links)) as file:
        data: bytes | None = file.read(limit + 1)
    if data is None:  # for example, a file in /proc may have no content yet
        raise OSError(errno.EINVAL, "has no content at present", str(path))
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"has more than {limit} bytes", str(path))
    return data


def similar_file(missing: Path) -> str:
    """Returns a question such as `did you mean 'train.py'?` for a file or directory that does not exist.

    Returns "" if no name in the directory of the file is similar. Only the first 2,000 names are compared.
    """
    from difflib import SequenceMatcher, get_close_matches

    try:
        with os.scandir(missing.parent) as entries:
            names = sorted({entry.name for entry in islice(entries, _MOST_NAMES)} - {missing.name})
    except (OSError, ValueError):  # ValueError: the path contains a NUL character
        return ""
    for name in get_close_matches(missing.name, names, cutoff=0.75):
        # A common ending such as `.yaml` makes short names similar.
        if SequenceMatcher(None, missing.stem, Path(name).stem).ratio() >= 0.6:
            return f"did you mean {str(missing.with_name(name))!r}?"
    return ""


def script_remedy(script: str, base: Path) -> str:
    """Returns what to write instead of a path of a script or directory that does not exist, or "" if this is unknown.

    >>> script_remedy("python train.py --lr 3", Path("/code"))
    'a script is only a path; write the path "train.py", and the args ["--lr", "3"]'

    Args:
        script: the path. It may be a whole command.
        base: the directory to which the path is relative.
    """
    if (base / script).is_dir():
        return "this is a directory; give the path of a script in it"
    words = script.split()
    words = words[1:] if words and re.fullmatch(r"(.*/)?python[0-9.]*", words[0]) else words
    if " " in script and words and words[0].endswith(".py"):
        args = f", and the args {json.dumps(words[1:])}" if words[1:] else ""
        return f"a script is only a path; write the path {json.dumps(words[0])}{args}"
    return similar_file(base / script)


def _check(about: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise NotRegularError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise NotRegularError(errno.EINVAL, "is not a regular file", str(path))
