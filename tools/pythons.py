"""Finds the CPython interpreters of this machine that tests can use.

`make setup-oldest` and `make setup-newest` create environments for the core with the oldest and the newest interpreter
that the core supports. tests/agent runs the agent with the oldest interpreter that the agent supports.
`python3 tools/pythons.py newest` prints a path.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOR_THE_CORE = (3, 11)
"""The oldest Python version that the package supports (`requires-python` in pyproject.toml)."""
FOR_THE_AGENT = (3, 8)
"""The oldest Python version in a training image with which the agent works."""
NEWEST = (3, 14)
"""The newest Python version for which all dependencies have wheels.

PyYAML 6.0.3 in locks/core.txt has no wheels for 3.15."""

_NAME = re.compile(r"python3\.(\d+)")  # excludes python3-config, and python3.13t, which has no GIL
_SHOW_VERSION = """
import sys
base = sys.prefix == sys.base_prefix
print(sys.implementation.name, base, *sys.version_info[:4], sys.executable)
"""
_SECONDS = 10.0


@dataclass(frozen=True, order=True)
class Interpreter:
    """A CPython release that is installed on this machine.

    Args:
        version: the major, minor and patch version.
        path: the absolute path of the executable. It is not the path of a pyenv shim.
    """

    version: tuple[int, int, int]
    path: Path


def interpreters(minimum: tuple[int, int], environment: Mapping[str, str] = os.environ) -> list[Interpreter]:
    """Returns the CPython releases of this machine from `minimum` to `NEWEST`, ordered by version.

    The function searches for `python3.N` in the directories of PATH, in pyenv's versions and in /usr/bin. It ignores
    virtual environments, other implementations and pre-releases. It also ignores executables that do not start, such as
    the pyenv shim of a version that is not selected.

    Args:
        minimum: the major and minor version of the oldest interpreter.
        environment: the environment variables. The function reads PATH, and PYENV_ROOT or HOME.
    """
    found: dict[Path, Interpreter] = {}
    for candidate in _candidates(minimum, environment):
        interpreter = _interpreter_at(candidate)
        if interpreter is not None and minimum <= interpreter.version[:2] <= NEWEST:
            found.setdefault(interpreter.path.resolve(), interpreter)
    return sorted(found.values())


def _candidates(minimum: tuple[int, int], environment: Mapping[str, str]) -> Iterator[Path]:
    """Yields each executable whose name contains a version in the range."""
    directories = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text]
    home = environment.get("HOME")
    pyenv = environment.get("PYENV_ROOT") or (f"{home}/.pyenv" if home else "")
    directories += sorted(Path(pyenv, "versions").glob("*/bin")) if pyenv else []
    directories.append(Path("/usr/bin"))
    seen = set[Path]()
    for directory in directories:
        for path in sorted(directory.glob("python3.*")):
            name = _NAME.fullmatch(path.name)
            if not name or not minimum <= (3, int(name[1])) <= NEWEST:
                continue
            # Only the directory is resolved. In a virtual environment, the executable is a link to the base
            # interpreter. The two must be treated as different interpreters.
            known = path.parent.resolve() / path.name
            if known not in seen and os.access(path, os.X_OK):
                seen.add(known)
                yield path


def _interpreter_at(path: Path) -> Interpreter | None:
    """Starts an interpreter and returns its version and path. Returns None if tests cannot use the interpreter."""
    try:
        done = subprocess.run([path, "-I", "-c", _SHOW_VERSION], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.strip().split(" ", 6)
    if done.returncode or words[:2] != ["cpython", "True"] or words[5] != "final":
        return None
    major, minor, patch = (int(word) for word in words[2:5])
    return Interpreter((major, minor, patch), Path(words[6]))


def main(arguments: Sequence[str]) -> int:
    """Prints the path of the oldest or newest interpreter for the core. Returns 1 if there is no interpreter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["oldest", "newest"])
    which = parser.parse_args(arguments).which
    found = interpreters(FOR_THE_CORE)
    if not found:
        oldest, newest = (".".join(map(str, version)) for version in (FOR_THE_CORE, NEWEST))
        print(f"no CPython {oldest} to {newest} on PATH, in pyenv or in /usr/bin; install one", file=sys.stderr)
        return 1
    print(found[0 if which == "oldest" else -1].path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
