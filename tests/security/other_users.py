"""Programs that tests run as another user."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepset

PYTHON = "/usr/bin/python3"
"""The system's Python. Another user may be unable to read the Python of the tests, for example that of pyenv."""
_PACKAGE = Path(stepset.__file__).parents[1]


def program(code: str) -> list[str]:
    """Returns the command that runs Python code that imports stepset's modules without dependencies.

    Skips the test if another user cannot read the package.
    """
    if any(not parent.stat().st_mode & 0o001 for parent in (_PACKAGE, *_PACKAGE.parents)):
        pytest.skip("another user cannot read the package")
    return [PYTHON, "-c", f"import sys; sys.path.insert(0, {str(_PACKAGE)!r})\n{code}"]
