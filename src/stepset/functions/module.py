"""Converts a function to a program that contains the files of the modules that the function needs."""

from __future__ import annotations

import base64
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from stepset.functions.extract import extract
from stepset.functions.program import program_text

_UNPACK = """\
    import atexit, base64, subprocess, sys, tempfile

{extract}
    directory = tempfile.mkdtemp(prefix="stepset-code-")
    atexit.register(subprocess.run, ["rm", "-rf", directory], stderr=subprocess.DEVNULL)
    extract(base64.b64decode({packed!r}), directory)
    sys.path.insert(0, directory)
    global _stepset_code
    _stepset_code = (*globals().get("_stepset_code", ()), directory)
"""
"""Statements of a function that extracts files to a new directory, from which Python then imports modules.

Unlike `shutil.rmtree` before Python 3.13, `rm` can delete deep directories."""
_FUNCTION = """\
def _stepset_call(*args, **kwargs):
{unpack}    import importlib

    return getattr(importlib.import_module({module!r}), {name!r})(*args, **kwargs)


{name} = _stepset_call
"""
_MODULES = """\
def _stepset_modules():
{unpack}

_stepset_modules()


"""


def source_with_modules(source: str, packed: bytes) -> str:
    """Returns statements that make modules importable, followed by the source of a function.

    `packed` is a tar.gz with the files of the modules. Every rank extracts these files to a directory of its own.
    """
    return _MODULES.format(unpack=_unpack(packed)) + source


def module_program(
    module: str, name: str, packed: bytes, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> str:
    """Returns a program that calls the function `name` of `module` in every rank.

    `packed` is a tar.gz with the module's files. Every rank extracts these files to a directory of its own, and imports
    the module from this directory. `program_text` describes `args`, `kwargs`, the result and the errors.
    """
    return program_text(_FUNCTION.format(module=module, name=name, unpack=_unpack(packed)), name, args, kwargs)


def _unpack(packed: bytes) -> str:
    source = textwrap.indent(inspect.getsource(extract), "    ")
    return _UNPACK.format(extract=source, packed=base64.b64encode(packed).decode())
