"""Copies files that the training code has written, and refuses to copy any other file.

A path in a result, or a link in a shared directory, may lead to the step's own files, to a device or to a pipe.
Therefore only regular files below given directories are copied.

Training code that is still running may replace files and directories at any time. Therefore this module first opens a
file, and then checks the opened file. A check of the path would be unsafe.

The file is first opened with O_PATH, which has no effect on a device or a pipe. The content is opened only if the check
has shown that the file is a regular file. Hard links are copied like other files, because a hard link cannot lead to
another file system.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from stepset.directory_trees import Cursor, discard_tree

MAX_DEPTH = 64
"""The maximum depth of nested directories to copy."""
MAX_ENTRIES = 100_000
"""The maximum number of files and directories to copy."""

_SYSTEM = (Path("/proc"), Path("/sys"), Path("/dev"))
_RESERVE = 0.05
"""The fraction of the target's file system that remains free after a copy."""
_UNUSABLE = (errno.ENXIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR)
"""Errors that can occur when the module opens a path that the training code has chosen.

The path may lead to a socket or to a cycle of links. The name may be too long. The file may not exist."""
_CHUNK = 1 << 20


class OutsideError(OSError):
    """A path leads to a file that is outside the given directories, or that must not be copied."""


def copy_contained(source: Path, target: Path, roots: Sequence[Path], within: Path | None = None) -> None:
    """Copies a file, or the regular files of a directory and its subdirectories.

    A link to a file is followed if the file is below one of the roots. If the copy fails and `target` did not exist
    before, the function deletes what it has written.

    Args:
        source: the file or directory to copy.
        target: the path of the copy. A link at this path is replaced by the copy and not followed.
        roots: the resolved directories from which files may be copied. The training must not be able to replace these
            directories.
        within: a resolved directory, or None. If a directory is given, no file is written outside of this directory.

    Raises:
        OutsideError: the source is below none of the roots, or is neither a regular file nor a directory. Also raised
            if the source contains too many files or too deeply nested directories, or is larger than the free space at
            the target.
        OSError: the source cannot be read, or the target cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    existed = target.exists()
    with _opened(source, None, roots) as (fd, status):
        try:
            if stat.S_ISDIR(status.st_mode):
                _copy_directory(fd, target, roots, within)
            else:
                _copy_file(fd, status, target, within)
        except BaseException as error:
            if not existed:
                _remove(target)
            if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
                raise OutsideError(errno.EFBIG, "has a path that is too long to copy", str(source)) from error
            raise


def contained_roots(paths: Sequence[Path]) -> list[Path]:
    """Returns the resolved directories that `copy_contained` can use as `roots`.

    If a given directory is inside another given directory, the inner directory is omitted, because the training code
    can replace the inner directory with a link.
    """
    outer = [path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths)]
    return [path.resolve() for path in dict.fromkeys(outer)]


def is_contained(real: Path, roots: Sequence[Path]) -> bool:
    """Returns whether a resolved path is below one of the roots, and not in /proc, /sys or /dev.

    A path in one of these three directories is accepted if that directory is one of the roots.
    """
    if any(real.is_relative_to(each) for each in _SYSTEM if each not in roots):
        return False
    return any(real.is_relative_to(root) for root in roots)


@contextmanager
def open_contained(path: Path, roots: Sequence[Path]) -> Iterator[BinaryIO]:
    """Opens a regular file below one of the roots for reading.

    The function does not block if the path is a pipe. Raises OutsideError if `copy_contained` would not copy the file.
    Raises OSError if the file cannot be opened.
    """
    with _opened(path, None, roots) as (fd, status):
        if not stat.S_ISREG(status.st_mode):
            raise _outside(path)
        with _reopened(fd) as file:
            yield file


@contextmanager
def _opened(path: Path | str, directory: int | None, roots: Sequence[Path]) -> Iterator[tuple[int, os.stat_result]]:
    """Opens a file or directory below one of the roots, and yields its file descriptor and status.

    The descriptor is opened with O_PATH, and cannot be used to read the content.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    except ValueError as error:  # a NUL in the name
        raise OutsideError(errno.EINVAL, "is not a path", str(path)) from error
    except OSError as error:
        if error.errno in _UNUSABLE:
            raise OutsideError(error.errno, f"is not a regular file: {error.strerror}", str(path)) from error
        raise
    try:
        status = os.fstat(fd)
        usable = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not usable or not is_contained(Path(f"/proc/self/fd/{fd}").readlink(), roots):
            raise _outside(path)
        yield fd, status
    finally:
        os.close(fd)


def _outside(path: Path | str) -> OutsideError:
    return OutsideError(errno.EPERM, "is not a regular file of the directories that the job declares", str(path))


def _reopened(fd: int) -> BinaryIO:
    return Path(f"/proc/self/fd/{fd}").open("rb")


def _copy_directory(fd: int, target: Path, roots: Sequence[Path], within: Path | None) -> None:
    count = 0
    with closing(Cursor(Path(f"/proc/self/fd/{fd}"))) as cursor:
        for entries in cursor.walk(lambda name, error: None):
            count += len(entries)
            if count > MAX_ENTRIES:
                raise OutsideError(errno.EFBIG, f"contains more than {MAX_ENTRIES} files and directories")
            if len(cursor.parts) > MAX_DEPTH:
                raise OutsideError(errno.EFBIG, f"has more than {MAX_DEPTH} levels of directories")
            below = target.joinpath(*cursor.parts)
            below.mkdir(parents=True, exist_ok=True)
            for name in (entry.name for entry in entries if not entry.is_directory):
                try:
                    with _opened(name, cursor.fd, roots) as (file, status):
                        if stat.S_ISREG(status.st_mode):
                            _copy_file(file, status, below / name, within)
                except OutsideError as error:
                    if error.errno in (errno.ENOSPC, errno.EFBIG):
                        raise


def _copy_file(fd: int, status: os.stat_result, target: Path, within: Path | None) -> None:
    """Copies a file. If the file grows during the copy, the additional bytes are not copied."""
    usage = shutil.disk_usage(target.parent)
    if status.st_size > usage.free - _RESERVE * usage.total:
        raise OutsideError(errno.ENOSPC, f"is larger than the space that is left ({status.st_size} bytes)")
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    left = status.st_size
    with os.fdopen(out, "wb") as copy, _reopened(fd) as file:
        if within is not None and not Path(f"/proc/self/fd/{out}").readlink().is_relative_to(within):
            raise OutsideError(errno.EPERM, "would be written outside the shared directory", str(target))
        copy.truncate(0)
        while left and (data := file.read(min(left, _CHUNK))):
            copy.write(data)
            left -= len(data)


def _remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        discard_tree(target)
    else:
        target.unlink(missing_ok=True)
