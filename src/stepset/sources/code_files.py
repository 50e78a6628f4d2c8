"""Finds the files of a code directory. Separates shipped files, ignored files and files that cannot be shipped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from stepset.directory_trees import Cursor, Entry
from stepset.errors import BadInputError
from stepset.sources.ignore import NEVER_CODE, OWN_FILE, RUN_ENTRIES, VENV_FILE, IgnoreRules
from stepset.sources.regular_file import errors_of
from stepset.sources.secret_files import secret_by_name
from stepset.spec.scalars import shortened

MAX_FILES = 10_000
"""The maximum number of shipped files. A directory with more files contains data, or is the wrong directory."""
MAX_PATH = 4_000
"""The maximum number of bytes of a path within the code directory. Linux limits paths to 4,096 bytes (PATH_MAX)."""
MAX_ENTRIES = 100_000
"""The maximum number of examined files and directories, including ignored files. The limit also bounds the time."""
_SHOWN = 10


@dataclass(frozen=True)
class CodeFile:
    """A file that is shipped.

    Args:
        path: the absolute path of the regular file on this machine. When the directory was read, this path contained no
            symbolic link. For a symbolic link, `path` is the target of the link.
        size: the number of bytes at the time when the directory was read.
    """

    path: Path
    size: int


@dataclass(frozen=True)
class CodeFiles:
    """The files of a code directory.

    Args:
        directory: the path of the code directory. Symbolic links in this path are resolved.
        files: the shipped files. The keys are the paths of the files within the directory, in sorted order.
        ignore_file: the name of the ignore files that are used, or None without ignore files.
        ignored_files: the number of ignored files. The number does not include files in ignored directories.
        ignored_directories: the number of ignored directories.
    """

    directory: Path
    files: Mapping[str, CodeFile]
    ignore_file: str | None = None
    ignored_files: int = 0
    ignored_directories: int = 0

    @property
    def remedy_file(self) -> str:
        """The name of the ignore file to which a user can add a pattern."""
        return self.ignore_file or OWN_FILE

    @property
    def size(self) -> int:
        """The total number of bytes of all files."""
        return sum(file.size for file in self.files.values())

    def largest_first(self) -> list[tuple[str, int]]:
        """Returns the path and the number of bytes of each file, the largest first."""
        return sorted(((name, file.size) for name, file in self.files.items()), key=lambda row: (-row[1], row[0]))


def find_code_files(directory: Path) -> CodeFiles:
    """Returns the files of a code directory that are shipped.

    A symbolic link to a file inside the directory is shipped as a file. The following entries cannot be shipped:

    - Other symbolic links. Their targets do not exist in the pods.
    - Files whose names indicate credentials.
    - Files that are not regular, such as sockets.

    Raises:
        BadInputError: a file cannot be shipped, or there are too many files. The message has one line for each file
            that cannot be shipped.
        ChangedError: another program replaced a directory during the call.
        OSError: a directory cannot be read.
    """
    root = directory.resolve()
    found = _Walk(root)
    found.collect()
    problems = [*found.problems, *found.link_problems()]
    remedy_file = found.rules.file_name or OWN_FILE
    problems += _secrets(found.files, remedy_file, root)
    if problems:
        more = [f"code: {len(problems) - _SHOWN} more files cannot be shipped"] if len(problems) > _SHOWN else []
        raise BadInputError(*problems[:_SHOWN], *more)
    if len(found.files) > MAX_FILES:
        raise _too_many(
            root, f"{len(found.files)} files; at most {MAX_FILES} can be shipped", found.counts, remedy_file
        )
    return CodeFiles(
        root,
        dict(sorted(found.files.items())),
        found.rules.file_name,
        found.ignored_files,
        found.ignored_directories,
    )


@dataclass
class _Walk:
    """One traversal of a code directory."""

    root: Path
    rules: IgnoreRules = field(default_factory=IgnoreRules)
    files: dict[str, CodeFile] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # top directory -> the number of entries in it
    ignored_files: int = 0
    ignored_directories: int = 0
    _seen: int = 0

    def collect(self) -> None:
        """Fills the fields. Follows no link, even if another program replaces a directory by a link."""
        with closing(Cursor(Path("/"))) as cursor:
            self._collect(cursor)

    def _collect(self, cursor: Cursor) -> None:
        folders = [("", self.rules)]
        while folders:
            folder, rules = folders.pop()
            with errors_of(self.root / folder):
                cursor.move_to((self.root / folder).parts[1:])
                entries = sorted(cursor.entries(MAX_ENTRIES + 1 - self._seen))
            names = {entry.name for entry in entries}
            if not folder:
                rules = self.rules = IgnoreRules.of_directory(self.root)
            self._count(folder, len(entries))
            if folder and (VENV_FILE in names or names >= RUN_ENTRIES):
                continue
            if folder and rules.file_name in names:
                rules = rules.in_folder(self.root, folder)
            with errors_of(self.root / folder):
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name not in NEVER_CODE and self._add(name, entry, rules, cursor.fd):
                        folders.append((name, rules))

    def _add(self, name: str, entry: Entry, rules: IgnoreRules, fd: int) -> bool:
        """Adds an entry of the directory with the descriptor `fd`. Returns whether this is a directory to traverse."""
        if rules.ignores(name, entry.is_directory):
            self.ignored_directories += entry.is_directory
            self.ignored_files += not entry.is_directory
        elif len(os.fsencode(name)) > MAX_PATH:
            self.problems.append(
                f"code: {shortened(shown(name))} has a path of more than {MAX_PATH} bytes, and cannot be"
                f" shipped; remove it, or add it to {rules.file_name or OWN_FILE}"
            )
        elif entry.is_directory:
            return True
        elif entry.is_link:
            self.links.append(name)
        elif entry.is_file:
            about = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
            self.files[name] = CodeFile(self.root / name, about.st_size)
        else:
            self.problems.append(
                f"code: {shown(name)} is a pipe, socket or device, and cannot be shipped; remove it, or add it"
                f" to {rules.file_name or OWN_FILE}"
            )
        return False

    def _count(self, folder: str, entries: int) -> None:
        self._seen += entries
        self.counts[folder.split("/", 1)[0]] += entries
        if self._seen > MAX_ENTRIES:
            remedy_file = self.rules.file_name or OWN_FILE
            raise _too_many(self.root, f"more than {MAX_ENTRIES} files and directories", self.counts, remedy_file)

    def link_problems(self) -> Iterator[str]:
        """Yields an error line for each link whose target is not a shipped file. Adds all other links to `files`."""
        regular = dict(self.files)
        for name in sorted(self.links):
            remedy = f"or add the link to {self.rules.file_name or OWN_FILE}"
            try:
                target = Path(os.path.realpath(self.root / name, strict=True))
            except OSError as error:
                yield f"code: {shown(name)} is a link that leads nowhere ({error.strerror}); remove it, {remedy}"
                continue
            inside = target.relative_to(self.root).as_posix() if target.is_relative_to(self.root) else None
            if inside in regular:
                self.files[name] = regular[inside]
                continue
            if inside is None:
                what = f"{shown(str(target))}, outside of the directory {self.root}"
            elif target.is_dir():
                what = f"a directory ({shown(inside)})"
            else:
                what = f"{shown(inside)}, which is not shipped"
            yield f"code: {shown(name)} is a link to {what}; replace it with a copy, {remedy}"


def _secrets(files: Mapping[str, CodeFile], remedy_file: str, root: Path) -> Iterator[str]:
    """Yields an error line for each file or directory whose name indicates credentials."""
    found = (secret_by_name(name) for name in sorted(files))
    for name in dict.fromkeys(each for each in found if each is not None):
        yield secret_problem(name, remedy_file, root)


def secret_problem(name: str, remedy_file: str, root: Path) -> str:
    """Returns the error line about a file or directory that contains credentials."""
    return (
        f"code: {shown(name)} looks like credentials, and many accounts may read the ConfigMap of the code;"
        f" add it to {remedy_file}, or move it out of {root}; to use credentials, set a variable from a Secret (env)"
    )


def shown(name: str) -> str:
    """Returns a file name in a form that fits on one line of a message.

    Line breaks and control characters in the name are escaped.

    >>> shown("a.py"), shown("a\\n.py")
    ('a.py', "'a\\\\n.py'")
    """
    return name if name.isprintable() else ascii(name)


def _too_many(root: Path, what: str, counts: Mapping[str, int], remedy_file: str) -> BadInputError:
    below = {name: count for name, count in counts.items() if name}
    most = max(below, key=lambda name: below[name], default=None)
    where = f", most of them in {shown(most)}" if most is not None else ""
    return BadInputError(f"code: {root} has {what}{where}; add data to {remedy_file}, or name a smaller directory")
