"""Packs the files of a Python module. Files are ignored or rejected by the same rules as for a job's `code`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stepset.errors import BadInputError
from stepset.sources import located_errors
from stepset.sources.archive import pack
from stepset.sources.code_files import CodeFile, CodeFiles, find_code_files
from stepset.sources.secret_files import secret_by_name
from stepset.sources.siblings import find_siblings

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""The names of the directories into which installers put modules."""


def packed_module(module: str, file: Path) -> bytes:
    """Returns a tar.gz of the package that contains a module.

    If the module is not part of a package, the tar.gz contains the file of the module, and the modules that the module
    imports from the directory of this file, as for a script. If such a module is installed in site-packages, the tar.gz
    contains only its file, because the other packages of site-packages must be installed in the image.

    Raises:
        BadInputError: the package or the modules contain files that cannot be shipped, or are too large.
    """
    package = module.split(".", 1)[0]
    with located_errors("function", file):
        if package == module and file.name != "__init__.py":
            size = file.stat().st_size
            beside = {} if INSTALLED.intersection(file.parts) else _imports(file.absolute(), file.read_bytes())
            files = {f"{module}.py": CodeFile(file.resolve(), size), **beside}
            return pack(CodeFiles(file.parent.resolve(), files))
        levels = module.count(".") + (file.name == "__init__.py")
        found = find_code_files(file.resolve().parents[levels - 1])
        return pack(replace(found, files={f"{package}/{name}": each for name, each in found.files.items()}))


def packed_imports(source: str, file: Path | None, code: Path | None) -> bytes | None:
    """Returns a tar.gz of the modules that the source of a function imports from the directory of `file`.

    The modules are found in the same way as the modules that a script imports from its directory. Modules that the
    directory `code` contains are left out.

    Returns None if there is no such module, or if `file` is None.

    Raises:
        BadInputError: a module cannot be shipped.
    """
    if file is None:
        return None
    with located_errors("function", file):
        beside = _imports(file, source.encode())
        found = {name: each for name, each in beside.items() if code is None or not (code / name).exists()}
        return pack(CodeFiles(file.parent, found)) if found else None


def _imports(file: Path, source: bytes) -> dict[str, CodeFile]:
    """Returns the modules beside a file that a source text imports. Raises BadInputError for credentials."""
    found = find_siblings(file, source, file.parent).files
    if secret := [name for name, each in found.items() if secret_by_name(name) or secret_by_name(each.path.name)]:
        raise BadInputError(
            f"function: it imports {secret[0]}, which looks like credentials; rename it, or import another module"
        )
    return found


def packed_directory(directory: Path) -> bytes:
    """Returns a tar.gz of a code directory. Raises the same exceptions as `packed_module`."""
    with located_errors("code", directory):
        return pack(_code_files(directory))


def _code_files(directory: Path) -> CodeFiles:
    if not directory.is_dir():
        raise BadInputError(f"code: no such directory: {directory}; paths are relative to the current directory")
    return find_code_files(directory)


def packed_code(module: str, file: Path, directory: Path) -> bytes:
    """Returns a tar.gz of a code directory that contains a module. Raises the same exceptions as `packed_module`."""
    with located_errors("code", directory):
        found = _code_files(directory)
        path = module.replace(".", "/")
        if not {f"{path}.py", f"{path}/__init__.py"} & found.files.keys():
            raise BadInputError(
                f"code: {directory} does not contain the module {module} ({file}); give the directory from which it is"
                " imported"
            )
        return pack(found)
