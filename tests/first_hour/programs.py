"""Programs of the user's environment, such as `airflow` and `jupyter`, started in a directory of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.first_hour.shell import in_terminal

_LIMIT = 300
"""Seconds within which a program must end, on a busy machine."""


@dataclass(frozen=True)
class Screen:
    """Where a program prints.

    Args:
        columns: the width of the terminal; None: a pipe.
        variables: the variables with which the user changes what is printed.
    """

    columns: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


PIPE = Screen()
SCREENS = [
    pytest.param(PIPE, id="a pipe"),
    pytest.param(Screen(80), id="80 columns"),
    pytest.param(Screen(120, {"NO_COLOR": "1"}), id="120 columns, NO_COLOR"),
]


def run_program(
    directory: Path, name: str, *words: str, screen: Screen = PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, with `directory` as home and current directory, and stderr in stdout."""
    hidden = ("STEPSET_", "XDG_", "AIRFLOW", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = {**kept, "HOME": str(directory), "PATH": path, "TERM": "xterm", **screen.variables, **variables}
    command = [str(programs / name), *words]
    if screen.columns is not None:
        shown = in_terminal(command, directory, env, screen.columns)
        return subprocess.CompletedProcess(command, shown.code, shown.out.replace("\r\n", "\n"))
    return subprocess.run(
        command,
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
