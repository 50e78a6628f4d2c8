"""Finds programs that Python cannot import: a misspelt `module`, and a script that imports its own package.

On a cluster, such a program causes only a note, because the image can contain further modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from stepset.errors import BadInputError
from stepset.sources.path_edits import path_edits
from stepset.sources.siblings import Parts, find_installed, imports_of, parsed


def module_notes(module: str, directory: Path) -> tuple[str, ...]:
    """Returns a note if a package in `directory`, or `directory` itself, lacks the module that a job runs.

    If nothing in `directory` has the first name of the module or a similar name, the module is not checked.

    Args:
        directory: the directory in which the ranks start.
    """
    parts = tuple(module.split("."))
    if _contains(directory, parts) or _installed(parts[0], directory):
        return ()
    known = next(at for at in range(len(parts)) if not _contains(directory, parts[: at + 1]))
    similar = get_close_matches(parts[known], _names(directory.joinpath(*parts[:known])), n=1)
    meant = (*parts[:known], *similar, *parts[known + 1 :])
    if similar and _contains(directory, meant):
        hint = f"did you mean {'.'.join(meant)!r}?"
    elif os.path.isfile(directory / parts[0] / "__init__.py"):  # noqa: PTH113
        hint = "check the name, and that the ranks start in the directory of the package"
    else:
        return ()
    return (f"module: {directory} contains no module {'.'.join(parts[: known + 1])}; {hint}",)


def check_module(module: str, directory: Path) -> None:
    """Raises BadInputError if the package of a module is in `directory`, and certainly lacks the module.

    Only a package that changes its `__path__` can contain modules from other directories.

    Args:
        directory: the directory in which the ranks start.
    """
    notes, file = module_notes(module, directory), directory / module.partition(".")[0] / "__init__.py"
    with suppress(OSError):
        if notes and b"__path__" not in file.read_bytes():
            raise BadInputError(notes[0])


def import_path_notes(script: Path, text: bytes, top: Path, base: Path) -> tuple[str, ...]:
    """Returns a note if a script imports a module from a parent directory, which is not in its `sys.path`.

    For example, `trainer/main.py` contains `import trainer.data`. Python finds this module only with `-m trainer.main`.

    Args:
        script: the absolute path of the script.
        text: the content of the script.
        top: the highest parent directory that is searched.
        base: the directory that relative paths of the job start from.
    """
    tree = parsed(text)
    edits = path_edits(tree, script, top)
    if edits.directories or edits.unknown:
        return ()
    parents = [each for each in script.parent.parents if each.is_relative_to(top)]
    for name in sorted({parts[0] for parts in imports_of(tree, ())} - sys.stdlib_module_names):
        parent = next((each for each in parents if _is_package_of(each / name, script)), None)
        if parent is None or _contains(script.parent, (name,)) or _installed(name, script.parent):
            continue
        module = script.relative_to(parent).with_suffix("").parts
        if all(part.isidentifier() for part in module):
            dotted, code = ".".join(module), os.path.relpath(parent, base)
            return (
                f"script: {script.name} imports {name} from {parent}, but Python searches only {script.parent} for the"
                f" imports of this script; use module: {dotted} and code: {code} instead of script, or run"
                f" `stepset run --code {code} -m {dotted}`",
            )
    return ()


def _is_package_of(package: Path, script: Path) -> bool:
    """Returns whether a path is a module, or a directory with the script. Other directories can contain only data."""
    regular = os.path.isfile(f"{package}.py") or os.path.isfile(package / "__init__.py")  # noqa: PTH113
    return regular or script.is_relative_to(package)


def _contains(directory: Path, name: Parts) -> bool:
    path = directory.joinpath(*name)  # os.path returns False if the directory cannot be read, but Path raises an error
    return os.path.isdir(path) or any(os.path.isfile(f"{path}{suffix}") for suffix in (".py", ".pyc"))  # noqa: PTH112, PTH113


def _installed(name: str, directory: Path) -> bool:
    """Returns whether this machine has a module or a regular package of this name outside `directory`."""
    found = find_installed(name, directory)
    return found is not None and found.origin is not None


def _names(directory: Path) -> Iterator[str]:
    """Yields the names of the modules and directories in a directory."""
    try:
        with os.scandir(directory) as entries:
            yield from (entry.name.removesuffix(".py") for entry in entries)
    except OSError:
        return
