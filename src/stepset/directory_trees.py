"""Traverses and deletes directory trees that other programs write and may change at the same time.

Every access is relative to the descriptor of a directory, and no link is followed. The functions are not recursive, and
keep three descriptors open at most. Therefore a tree may have any depth, and its paths may be longer than PATH_MAX.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""With O_PATH, a directory needs no read permission. macOS has no O_PATH."""


class ReplacedError(OSError):
    """A directory was moved, or replaced by another file, during a traversal."""


class UndeletableError(OSError):
    """A directory, or an entry below it, cannot be deleted. The text of the error states the reason on one line."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be deleted: {self.strerror}"


class Entry(NamedTuple):
    """An entry of a directory. All three fields are False for a pipe, a socket and a device."""

    name: str
    is_directory: bool
    is_link: bool
    is_file: bool


class Cursor:
    """An open directory, which can be changed to a directory below or above it.

    The cursor returns to a directory by the entry `..`, and checks that the result is the same directory as before.

    Args:
        path: the path of the first directory. Symbolic links in this path are followed.

    Attributes:
        fd: the descriptor of the directory, for the parameter `dir_fd` of functions of `os`.
        parts: the names that lead from the first directory to this directory.
        about: the attributes of the directory at the time when the cursor opened it.
    """

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, _FLAGS)
        self.about = os.fstat(self.fd)
        self.parts: list[str] = []
        self._above: list[os.stat_result] = []

    def enter(self, name: str) -> None:
        """Moves the cursor to a directory in this directory.

        Raises:
            ReplacedError: the entry is a link or another file.
            OSError: the entry cannot be opened.
        """
        try:
            self._above.append(self._change(name, os.O_NOFOLLOW))
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise ReplacedError(error.errno, "is no longer a directory", name) from error
            raise
        self.parts.append(name)

    def leave(self) -> None:
        """Moves the cursor to the directory above this directory. Raises ReplacedError if this directory was moved."""
        before, name = self._above.pop(), self.parts.pop()
        self._change("..")
        if not os.path.samestat(before, self.about):
            raise ReplacedError(errno.ESTALE, "was moved while it was read", name)

    def move_to(self, parts: Sequence[str]) -> None:
        """Moves the cursor to another directory below the first directory. Raises the errors of `enter` and `leave`."""
        pairs = zip(self.parts, parts, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        while len(self.parts) > common:
            self.leave()
        for name in parts[common:]:
            self.enter(name)

    def _change(self, name: str, flags: int = 0) -> os.stat_result:
        """Opens another directory and closes the current directory. Returns the attributes of the closed directory."""
        fd, before = os.open(name, _FLAGS | flags, dir_fd=self.fd), self.about
        os.close(self.fd)
        self.fd, self.about = fd, os.fstat(fd)
        return before

    def entries(self, limit: int | None = None) -> list[Entry]:
        """Returns the entries of this directory, at most `limit`. Raises OSError if the directory cannot be read."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            with os.scandir(fd) as scan:
                return [
                    Entry(
                        entry.name,
                        entry.is_dir(follow_symlinks=False),
                        entry.is_symlink(),
                        entry.is_file(follow_symlinks=False),
                    )
                    for entry in islice(scan, limit)
                ]
        finally:
            os.close(fd)

    def walk(
        self, failed: Callable[[str, OSError], object], left: Callable[[str], object] = lambda name: None
    ) -> Iterator[list[Entry]]:
        """Yields the entries of this directory and of each directory below it.

        While the caller handles the entries, the cursor is at their directory. The caller can remove entries from the
        list. The cursor does not enter the directories that were removed.

        Args:
            failed: is called with the name of each directory that cannot be entered or read, and the error.
            left: is called with the name of each directory that the cursor has left.

        Raises:
            ReplacedError: a directory was moved, and the cursor cannot return from it.
        """
        waiting: list[list[str]] = []
        name: str | None = "."
        while True:
            if name is not None:
                entries = []
                try:
                    entries = self.entries()
                except OSError as error:
                    failed(name, error)
                else:
                    yield entries
                waiting.append([entry.name for entry in reversed(entries) if entry.is_directory])
            if waiting[-1]:
                name = waiting[-1].pop()
                try:
                    self.enter(name)
                except OSError as error:
                    failed(name, error)
                    name = None
                continue
            waiting.pop()
            if not waiting:
                return
            below, name = self.parts[-1], None
            self.leave()
            left(below)

    def close(self) -> None:
        os.close(self.fd)


class _DeletionCursor(Cursor):
    """A cursor that gives this user all permissions for each of the user's directories."""

    def enter(self, name: str) -> None:
        super().enter(name)
        if self.about.st_mode & stat.S_IRWXU != stat.S_IRWXU and self.about.st_uid == os.geteuid():
            with suppress(OSError):  # `fd` refers to the directory. Therefore this path cannot lead to another file.
                os.chmod(f"/proc/self/fd/{self.fd}", stat.S_IRWXU)  # noqa: PTH101


def delete_tree(path: Path, last: Collection[str] = ()) -> None:
    """Deletes a directory and everything below it, except the content of file systems that are mounted below it.

    If entries cannot be deleted, the function deletes all other entries. If the directory does not exist, the function
    does nothing.

    Args:
        last: the names of files in the directory. These files are deleted only after everything else was deleted.

    Raises:
        UndeletableError: the directory, or an entry below it, cannot be deleted.
    """
    failures: list[tuple[str, OSError]] = []

    def failed(name: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) and not failures:
            failures.append((name, error))

    try:
        with closing(_DeletionCursor(path.parent)) as cursor:

            def attempt(function: Callable[..., None], name: str) -> None:
                try:
                    function(name, dir_fd=cursor.fd)
                except OSError as error:
                    failed(name, error)

            cursor.enter(path.name)
            device = cursor.about.st_dev
            for entries in cursor.walk(failed, lambda name: attempt(os.rmdir, name)):
                if cursor.about.st_dev != device:
                    entries.clear()
                for entry in entries:
                    if not entry.is_directory and (len(cursor.parts) > 1 or entry.name not in last):
                        attempt(os.unlink, entry.name)
            for name in () if failures else last:
                attempt(os.unlink, name)
            cursor.leave()
            attempt(os.rmdir, path.name)
    except OSError as error:
        failed(path.name, error)
    for name, cause in failures:
        raise UndeletableError(cause.errno, f"{cause.strerror}: {name!a}", str(path)) from cause


def discard_tree(path: Path) -> None:
    """Deletes a directory as `delete_tree` does. Logs a warning if the directory cannot be deleted."""
    try:
        delete_tree(path)
    except UndeletableError as error:
        _log.warning("%s", error)
