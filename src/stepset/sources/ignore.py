"""Decides which files of a code directory are ignored.

A file is ignored if its name is in a fixed list of names, such as `.git`, or if a pattern in an ignore file matches its
path. The patterns have the same meaning as in a `.gitignore` file (git 2.39, Documentation/gitignore.txt). The package
pathspec matches paths against the patterns.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from stepset.errors import BadInputError
from stepset.sources.regular_file import read_regular
from stepset.spec.scalars import shortened

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

OWN_FILE = ".stepsetignore"
"""The name of the ignore file in a code directory. If this file does not exist, `.gitignore` is used."""
GIT_FILE = ".gitignore"

NEVER_CODE = frozenset(
    {
        OWN_FILE,  # if a process in a pod packs the shipped code, this process must not filter the code again
        GIT_FILE,
        ".DS_Store",
        ".direnv",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "local_outputs",  # KFP's local runner writes the outputs of steps to this directory, with the packed code
        "node_modules",
    }
)
"""The names of files and directories that are always ignored. An ignore file cannot change this."""
VENV_FILE = "pyvenv.cfg"
"""The file that marks a directory as a virtual environment (PEP 405). Virtual environments are always ignored."""
RUN_ENTRIES = frozenset({"job.json", "lock", "pods", "ranks"})
"""The entries in the directory of a local run. Such directories, which are in STEPSET_HOME, are always ignored."""

_LIMIT = 1024 * 1024
_MAX_PATTERNS = 2000
_MAX_LENGTH = 4096
"""The maximum length of a pattern in bytes. This is the maximum length of a path on Linux (PATH_MAX)."""
_MAX_DOUBLE_STARS = 2
_STAR = r"\[\^/\]\*"
_BETWEEN_STARS = re.compile(rf"{_STAR}((?:(?!{_STAR})(?:\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[^][/\\()]))+)(?={_STAR})")
"""Regular expressions that match, in the regular expression of a pattern, a `*` and the characters between two `*`."""
_END = "\0"
"""A suffix that is added to every pattern and to every path. File names cannot contain this character.

Without the suffix, a pattern that matches a directory would also match every path in the directory, because pathspec
matches prefixes of paths. A later pattern could then not include the directory again. With the suffix, each pattern
matches only whole paths, as in git.
"""
_SPECIAL = re.compile(r"([\\*?\[\]])")


@dataclass(frozen=True)
class IgnoreRules:
    """The rules for one folder of a code directory.

    Args:
        file_name: the name of the ignore files. The code directory and each of its folders can contain a file of this
            name. None if the code directory has no ignore file.
        patterns: pairs of a pattern and a bool. The pattern is relative to the code directory. The bool states whether
            the pattern matches only directories. If several patterns match a path, the last matching pattern decides.
    """

    file_name: str | None = None
    patterns: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def of_directory(cls, directory: Path) -> IgnoreRules:
        """Returns the rules for the entries at the top level of a code directory.

        Raises:
            BadInputError: the ignore file is not a regular file, is too large, or contains an invalid pattern.
            OSError: the ignore file cannot be read.
        """
        for name in (OWN_FILE, GIT_FILE):
            with suppress(FileNotFoundError):
                return cls(name).in_folder(directory, "")
        return cls()

    def in_folder(self, directory: Path, folder: str) -> IgnoreRules:
        """Returns the rules for the entries of a folder, including the rules of the folder's own ignore file.

        Raises the same exceptions as `of_directory`.

        Args:
            folder: the path of the folder within the code directory.
        """
        assert self.file_name is not None
        path = directory / folder / self.file_name
        content = read_regular(path, _LIMIT)
        if content is None:
            raise BadInputError(f"code: {path} is not a regular file of at most {_LIMIT} bytes; correct or remove it")
        text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
        try:
            own = tuple(_patterns(text, _as_bytes(folder)))
            if len(self.patterns) + len(own) > _MAX_PATTERNS:
                raise ValueError(f"more than {_MAX_PATTERNS} patterns, with those of the folders above it")
            rules = replace(self, patterns=(*self.patterns, *own))
            rules.ignores("a", is_directory=True)  # compiles the patterns, so that errors are raised here
        except (ValueError, re.error) as error:
            raise BadInputError(f"code: {path}: {error}; correct the pattern") from error
        return rules

    def ignores(self, name: str, is_directory: bool) -> bool:
        """Returns whether a path within the code directory is ignored.

        The method does not examine the parent folders of the path. Callers must skip ignored folders themselves.
        """
        if not self.patterns:
            return False
        spec = self._of_directories if is_directory else self._of_files
        return spec.check_file(_as_bytes(name) + _END).include is True

    @cached_property
    def _of_directories(self) -> GitIgnoreSpec:
        return _compiled(pattern for pattern, _ in self.patterns)

    @cached_property
    def _of_files(self) -> GitIgnoreSpec:
        return _compiled(pattern for pattern, only_directories in self.patterns if not only_directories)


def _as_bytes(path: str) -> str:
    """Returns a string with one character for each byte of a path.

    In git, a `?` in a pattern matches one byte. In pathspec, a `?` matches one character.
    """
    return os.fsencode(path).decode("latin-1")


def _compiled(patterns: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # imported only if there are rules, because the import takes some 50 ms

    return GitIgnoreSpec(list(map(_compiled_pattern, patterns)), backend="simple")


def _patterns(text: str, folder: str) -> Iterator[tuple[str, bool]]:
    """Yields the patterns in the text of a folder's ignore file.

    Each yielded pair contains a pattern, relative to the code directory, and whether the pattern matches only
    directories.

    >>> [pattern.rstrip(_END) for pattern, _ in _patterns("# data\\n*.bin\\n/out/\\n!keep/*.bin\\n", "a[1]")]
    ['/a\\\\[1\\\\]/**/*.bin', '/a\\\\[1\\\\]/out', '!/a\\\\[1\\\\]/keep/*.bin']
    """
    place = "/" + _SPECIAL.sub(r"\\\1", folder) + "/" if folder else "/"
    for line in text.split("\n"):
        if len(line) > _MAX_LENGTH:
            raise ValueError(f"{shortened(line)}: a pattern has at most {_MAX_LENGTH} bytes")
        rule = _without_trailing_spaces(line.removesuffix("\r"))
        body = rule.removeprefix("!")
        path = body.removesuffix("/")
        trailing_escape = (len(path) - len(path.rstrip("\\"))) % 2
        # Like git, this function skips a pattern that ends with a backslash.
        if rule.startswith("#") or not path.strip("/") or trailing_escape:
            continue
        anchored = "/" in path
        parts = path.removeprefix("/").split("/")
        if sum(part == "**" for part in parts[:-1]) > _MAX_DOUBLE_STARS:  # matching could take minutes
            problem = f"too many wildcards (at most {_MAX_DOUBLE_STARS} `**` before the last name)"
            raise ValueError(f"{shortened(path)}: {problem}")
        if parts[-1] == "**":
            parts[-1:] = ["*"] if len(parts) == 1 and not anchored else ["**", "*"]
        below = "/".join(parts if anchored else ["**", *parts])
        yield f"{'!' if rule != body else ''}{place}{below}{_END}", path != body


@lru_cache(maxsize=2 * _MAX_PATTERNS)  # the rules of all folders share patterns
def _compiled_pattern(pattern: str) -> GitIgnoreSpecPattern:
    from pathspec import GitIgnoreSpec

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the module re warns about sets such as [[a]
        compiled = GitIgnoreSpec.from_lines([pattern]).patterns[0]
        if compiled.regex is not None:
            # The characters between two `*` are searched only at their first place, because each later place leaves
            # less of the name for the rest of the pattern. Therefore a match needs no backtracking.
            single = re.sub(f"(?:{_STAR})+", "[^/]*", compiled.regex.pattern)
            compiled.regex = re.compile(_BETWEEN_STARS.sub(r"(?>[^/]*?\1)", single))
        return compiled


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 and stripped != line
    return f"{stripped} " if escaped else stripped
