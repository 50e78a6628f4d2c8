"""Finds the modules that a script imports directly or indirectly.

The modules can be in the directory of the script, or in directories that the script adds to sys.path.
"""

from __future__ import annotations

import ast
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from stepset.directory_trees import Cursor, Entry
from stepset.errors import BadInputError
from stepset.sources.code_files import CodeFile
from stepset.sources.ignore import NEVER_CODE
from stepset.sources.path_edits import path_edits
from stepset.sources.regular_file import ChangedError, errors_of, read_regular

MAX_MODULES = 1_000
"""The maximum number of modules that are shipped with a script."""
_MAX_ENTRIES = 10_000
"""The maximum number of files and directories that are examined in packages."""
_MAX_PARSED = 1024 * 1024
"""The maximum size, in bytes, of a module whose imports are read. Larger modules cannot be shipped."""

Parts = tuple[str, ...]
"""The parts of a module's name, such as ("lib", "data")."""


@dataclass(frozen=True)
class Siblings:
    """The modules that are shipped with a script.

    Args:
        files: the files of the modules. The keys are the paths within the script's directory, in sorted order.
        missing: the names of imported modules that are found neither in the script's directory nor on this machine. The
            tuple is empty unless a module adds to sys.path a directory whose path is unknown before the module runs.
    """

    files: dict[str, CodeFile]
    missing: tuple[str, ...] = ()


def find_siblings(script: Path, text: bytes, current: Path) -> Siblings:
    """Returns the modules in the script's directory that the script needs.

    If the script imports a regular package, all Python files of the package are returned, because code can import
    modules of a package by computed names. If the script imports from a directory without `__init__.py`, only the
    imported modules are returned. Modules in directories that the script or a module adds to `sys.path` are also
    returned. Modules of the standard library and the script itself are not returned.

    Args:
        script: the absolute path of the script's file.
        text: the content of the script.
        current: the directory in which the script runs.

    Raises:
        BadInputError: there are more than MAX_MODULES files. Also raised if a module is imported from an added
            directory outside the script's directory. Also raised if the path of an added directory depends on the
            current directory, and the pods would use a different current directory.
        OSError: a module cannot be read.
        ChangedError: a module changed while it was read.
    """
    search = _Search(script.parent, script.name, current)
    search.follow(script, text)
    if search.outside:
        raise _outside(script, search.outside, current)
    missing = search.missing() if search.unknown else ()
    return Siblings(dict(sorted(search.files.items())), missing)


def imported_names(text: bytes, package: Parts) -> frozenset[Parts]:
    """Returns the names that a module imports. Returns an empty set if `text` is not valid Python.

    For `from a import b`, the returned name is a.b, because b can be a module. `package` is the package of the module.
    Relative imports refer to this package.

    >>> sorted(imported_names(b"import a.b\\nfrom . import c\\n", ("lib",)))
    [('a', 'b'), ('lib', 'c')]
    """
    return imports_of(parsed(text), package)


def imports_of(tree: ast.AST, package: Parts) -> frozenset[Parts]:
    """Returns the names that a parsed module imports (`imported_names`)."""
    return frozenset(name for node in ast.walk(tree) for name in _names_of(node, package))


def find_installed(name: str, directory: Path) -> ModuleSpec | None:
    """Returns the module of this name that Python finds on this machine outside `directory`."""
    return PathFinder.find_spec(name, [place for place in sys.path if place and Path(place) != directory])


def parsed(text: bytes) -> ast.AST:
    """Returns the syntax tree of a module. If the text is not valid Python, the tree is empty."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler warns, for example, about invalid escapes
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _names_of(node: ast.AST, package: Parts) -> Iterator[Parts]:
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = node.level - 1
        if node.level and above >= len(package):
            return  # the relative import leaves the top-level package, which is an error in Python
        start = package[: len(package) - above] if node.level else ()
        parts = (*start, *(node.module.split(".") if node.module else ()))
        yield from ((*parts, alias.name) for alias in node.names)


@dataclass(frozen=True)
class _Added:
    """A directory that is added to `sys.path`.

    Args:
        from_current: whether the path of the directory depends on the current directory.
        shipped: whether the directory is shipped.
    """

    directory: Path
    from_current: bool
    shipped: bool


@dataclass
class _Search:
    """One search, which starts at the script."""

    root: Path
    script: str
    current: Path
    files: dict[str, CodeFile] = field(default_factory=dict)
    outside: dict[str, _Added] = field(default_factory=dict)  # imported module -> its directory, which is not shipped
    unknown: bool = False  # whether the path of an added directory is unknown
    _added: list[_Added] = field(default_factory=list)
    _names: set[Parts] = field(default_factory=set)
    _found: set[Parts] = field(default_factory=set)
    _entries: int = 0

    def follow(self, script: Path, text: bytes) -> None:
        """Adds the files of the modules that the script imports, and of the modules that these modules import."""
        waiting = self._read(script, text, ())
        while waiting:
            name = waiting.pop()
            for path, found in self._modules(name):
                shipped = path.relative_to(self.root).as_posix()
                if shipped == self.script or shipped in self.files:
                    continue
                self.files[shipped] = CodeFile(found, found.stat().st_size)
                if len(self.files) > MAX_MODULES:
                    raise self._too_many(f"more than {MAX_MODULES} modules")
                content = read_regular(found, _MAX_PARSED) or b""
                waiting += self._read(path, content, self._package_of(path))

    def missing(self) -> tuple[str, ...]:
        """Returns the names of modules that are found neither in the script's directory nor on this machine."""
        names = sorted({name[0] for name in self._names} - {name[0] for name in self._found} - sys.stdlib_module_names)
        return tuple(name for name in names if find_installed(name, self.root) is None)

    def _read(self, file: Path, text: bytes, package: Parts) -> list[Parts]:
        """Reads a module, and returns the imported names to search for next.

        The result contains the names that no earlier module imports. If the module adds a directory to sys.path, the
        result also contains the names that earlier modules import, because the new directory can contain modules with
        these names.
        """
        tree = parsed(text)
        edits = path_edits(tree, file, self.current)
        self.unknown |= edits.unknown
        known = [each.directory for each in self._added]
        added = [each for each in edits.directories.items() if each[0] not in (*known, self.root)]
        for directory, from_current in added:
            same_in_pods = not from_current or self.current == self.root
            shipped = directory.is_relative_to(self.root) and same_in_pods
            self._added.append(_Added(directory, from_current, shipped))
        names = imports_of(tree, package)
        new = names - self._names
        self._names |= names
        return [*(self._names if added else new)]

    def _package_of(self, path: Path) -> Parts:
        """Returns the package of a module, relative to the directory of sys.path that contains the module."""
        roots = [each.directory for each in self._added if each.shipped and path.is_relative_to(each.directory)]
        return path.relative_to(max([self.root, *roots], key=lambda root: len(root.parts))).parent.parts

    def _modules(self, name: Parts) -> Iterator[tuple[Path, Path]]:
        """Yields the path of each file of a module, and the same path without links.

        Selects the same files as Python's import system.
        """
        if name[0] in sys.stdlib_module_names:
            return
        for place in (_Added(self.root, False, True), *self._added):
            found = _find(place.directory, name)
            if found is None:
                continue
            self._found.add(name)
            if not place.shipped:
                self.outside.setdefault(name[0], place)
            elif found.suffix:
                yield found, found.resolve()
            else:
                yield from self._package(found)
            return

    def _package(self, package: Path) -> Iterator[tuple[Path, Path]]:
        real = package.resolve()
        with errors_of(real), closing(Cursor(Path("/"))) as cursor:
            cursor.move_to(real.parts[1:])
            for entries in cursor.walk(_raise):
                entries[:] = sorted(each for each in entries if not each.is_directory or each.name not in NEVER_CODE)
                self._entries += len(entries)
                if self._entries > _MAX_ENTRIES:
                    raise self._too_many(f"more than {_MAX_ENTRIES} files")
                for entry in entries:
                    if entry.name.endswith(".py") and (found := _module_file(cursor, entry)):
                        yield package.joinpath(*cursor.parts[len(real.parts) - 1 :], entry.name), found

    def _too_many(self, count: str) -> BadInputError:
        packages = sorted({name.split("/")[0].removesuffix(".py") for name in self.files})
        shown = ", ".join(packages[:10])
        return BadInputError(
            f"script: {self.script} imports {shown} beside it, which have {count};"
            " give code: ., or install these packages in the image"
        )


def _find(folder: Path, name: Parts) -> Path | None:
    """Returns the module or regular package of this name in `folder`, or None if there is none.

    The result for a module is the path of its file. The result for a package is the path of its directory.
    """
    for part in name:
        if (folder / part / "__init__.py").is_file():
            return folder / part
        if (folder / f"{part}.py").is_file():
            return folder / f"{part}.py"
        folder /= part
        if not folder.is_dir():
            return None
    return None


def _outside(script: Path, outside: dict[str, _Added], current: Path) -> BadInputError:
    """Returns the error for modules in directories of `sys.path` that are not shipped with the script."""
    names = ", ".join(sorted(outside)[:10])
    places = sorted({str(added.directory) for added in outside.values()})
    relative = any(added.from_current for added in outside.values())
    inside = all(Path(place).is_relative_to(current) for place in places)
    # The ranks start in the directory `code`.
    code = os.path.commonpath([script.parent, *places, *([current] if relative and inside else [])])
    change = "write the directory relative to __file__, and " if relative and not inside else ""
    give = f"{change}give code: {os.path.relpath(code, current)} with script: {os.path.relpath(script, code)}"
    return BadInputError(
        f"script: {script.name} imports {names} from {', '.join(places[:3])}, which it adds to sys.path and which is"
        f" not shipped with it; {give}, or install these modules in the image"
    )


def _module_file(cursor: Cursor, entry: Entry) -> Path | None:
    """Returns the path, without links, of a regular file or of the file that a link leads to. Otherwise returns None.

    Raises ChangedError if another program replaces a directory during the call, so that the path leads to another file.
    """
    path = Path("/", *cursor.parts, entry.name)
    if not entry.is_link:
        return path if entry.is_file else None
    try:
        about, found = os.stat(entry.name, dir_fd=cursor.fd), path.resolve()
        if not stat.S_ISREG(about.st_mode):
            return None
        if os.path.samestat(about, found.lstat()):
            return found
    except OSError:  # the link leads nowhere
        return None
    raise ChangedError(str(path))


def _raise(name: str, error: OSError) -> None:
    raise error
