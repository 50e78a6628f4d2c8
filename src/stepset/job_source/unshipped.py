"""Finds modules that this process can import, but that the ranks of a function cannot import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepset.functions.source import checked_source
from stepset.job_source.function_job import directory_of_imports
from stepset.job_source.module_files import INSTALLED
from stepset.sources.siblings import imported_names

_TIMEOUT = 20
"""The timeout, in seconds, of the new Python process that searches for the modules."""
_SEARCH = """\
import sys
from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if find_spec(name) is None))
"""


def unshipped_notes(function: Callable[..., Any], include: Collection[object] = ()) -> tuple[str, ...]:
    """Returns a note for each module that a function imports from a directory that only this process searches.

    An example is a directory that a notebook has added to `sys.path`. Imports of other cells, and imports of the
    definitions in `include`, count as imports of the function. The function's job must have no `code`.
    """
    shipped = directory_of_imports(function)
    if shipped is None:
        return ()
    found = dict(_local_modules(checked_source(function, include), shipped))
    missing = _missing_in_new_process(found) if found else set()
    return tuple(
        f"{getattr(function, '__name__', 'the function')} imports {name} from {place}, which is not shipped; add"
        f" code={_short(place)!r}"
        for name, place in found.items()
        if name in missing
    )


def _local_modules(source: str, shipped: Path) -> Iterator[tuple[str, Path]]:
    """Yields modules that are neither shipped nor installed, and the directories that contain them."""
    for name in sorted({parts[0] for parts in imported_names(source.encode(), ())} - sys.stdlib_module_names):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError):
            continue
        if spec is None or not (path := next(iter(spec.submodule_search_locations or ()), spec.origin)):
            continue
        place = Path(path).absolute().parent
        if place.is_dir() and place.resolve() != shipped.resolve() and not INSTALLED.intersection(place.parts):
            yield name, place


def _missing_in_new_process(names: Collection[str]) -> set[str]:
    """Returns the modules that a new process finds neither on PYTHONPATH nor in the installed packages.

    Returns no modules if the search fails, or if the path of Python is unknown, as in some embedded interpreters.
    """
    if not sys.executable:
        return set()
    words = [sys.executable, "-P", "-c", _SEARCH, *names]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return set()
    return set(done.stdout.split())


def _short(place: Path) -> str:
    relative = os.path.relpath(place)
    return str(place) if relative.startswith(os.pardir) else relative
