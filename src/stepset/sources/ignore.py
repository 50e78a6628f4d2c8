"""Which files of a code directory are ignored: names that are never code, and the rules of an ignore file.

The rules are those of gitignore (git 2.39, Documentation/gitignore.txt); the package pathspec matches them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stepset.errors import BadInputError
from stepset.sources.regular_file import read_regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

OWN_FILE = ".stepsetignore"
"""The ignore file in a code directory; if there is none, `.gitignore` is used."""
GIT_FILE = ".gitignore"

NEVER_CODE = frozenset(
    {
        OWN_FILE,  # if the unpacked code is packed again, the file would exclude files a second time
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
        "node_modules",
    }
)
"""Names of files and directories that are always ignored, whatever an ignore file says."""
VENV_FILE = "pyvenv.cfg"
"""The file that marks a directory as a virtual environment (PEP 405), which is ignored under any name."""

_LIMIT = 1024 * 1024
_END = "\0"
"""A suffix added to every pattern and path. Without it, a pattern of pathspec that matches a directory also matches
every path below it. In git the pattern matches only the directory, so that a later pattern can include it again. No
name contains the suffix, so each pattern matches whole paths only, as in git."""
_SPECIAL = re.compile(r"([\\*?\[\]])")


@dataclass(frozen=True)
class IgnoreRules:
    """The rules for one folder of a code directory.

    Args:
        file_name: the name of the ignore files that are read, in the directory and in each folder of it; None if there
            is no ignore file.
        patterns: the patterns, relative to the code directory, and whether each matches only directories; later ones
            take precedence.
    """

    file_name: str | None = None
    patterns: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def of_directory(cls, directory: Path) -> IgnoreRules:
        """Returns the rules for the files directly in a code directory.

        Raises:
            BadInputError: the ignore file is not a regular file, too large, or has a line that is no pattern.
            OSError: the ignore file cannot be read.
        """
        for name in (OWN_FILE, GIT_FILE):
            if os.path.lexists(directory / name):
                return cls(name).in_folder(directory, "")
        return cls()

    def in_folder(self, directory: Path, folder: str) -> IgnoreRules:
        """Returns the rules for the files of a folder that has an ignore file of its own; raises as `of_directory`.

        `folder` is its path within the code directory.
        """
        assert self.file_name is not None
        path = directory / folder / self.file_name
        content = read_regular(path, _LIMIT)
        if content is None:
            raise BadInputError(f"code: {path} is not a regular file of at most {_LIMIT} bytes; correct or remove it")
        text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
        rules = replace(self, patterns=(*self.patterns, *_patterns(text, _as_bytes(folder))))
        try:
            rules.ignores("a", is_directory=True)  # compiles all patterns, so that an error names this file
        except ValueError as error:
            raise BadInputError(f"code: {path}: {error}; correct the pattern") from error
        return rules

    def ignores(self, name: str, is_directory: bool) -> bool:
        """Whether a path within the code directory is ignored; requires that no folder above it is ignored."""
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
    """Returns a path with one character for each byte: `?` matches one byte in git, not one character."""
    return os.fsencode(path).decode("latin-1")


def _compiled(patterns: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # imported only if there are rules: it takes some 50 ms

    return GitIgnoreSpec.from_lines(patterns, backend="simple")


def _patterns(text: str, folder: str) -> Iterator[tuple[str, bool]]:
    """Yields (pattern relative to the code directory, whether it matches only directories) of a folder's ignore file.

    >>> [pattern.rstrip(_END) for pattern, _ in _patterns("# data\\n*.bin\\n/out/\\n!keep/*.bin\\n", "a[1]")]
    ['/a\\\\[1\\\\]/**/*.bin', '/a\\\\[1\\\\]/out', '!/a\\\\[1\\\\]/keep/*.bin']
    """
    place = "/" + _SPECIAL.sub(r"\\\1", folder) + "/" if folder else "/"
    for line in text.split("\n"):
        rule = _without_trailing_spaces(line.removesuffix("\r"))
        body = rule.removeprefix("!")
        path = body.removesuffix("/")
        trailing_escape = (len(path) - len(path.rstrip("\\"))) % 2
        # git, too, ignores a pattern that ends with a backslash.
        if rule.startswith("#") or not path.strip("/") or trailing_escape:
            continue
        anchored = "/" in path
        parts = path.removeprefix("/").split("/")
        if parts[-1] == "**":
            parts[-1:] = ["*"] if len(parts) == 1 and not anchored else ["**", "*"]
        below = "/".join(parts if anchored else ["**", *parts])
        yield f"{'!' if rule != body else ''}{place}{below}{_END}", path != body


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 and stripped != line
    return f"{stripped} " if escaped else stripped
