"""Compares how long the agent and an earlier version of the agent take to start.

The earlier version was a single source file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.paired import Row, paired
from stepset.agent import BUILT_FILE

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "bdc6a95:src/stepset/agent.py"
"""The file of the earlier version, in the last commit in which the agent was a single file."""
STARTS = 10
"""The number of starts in one sample. The system counts CPU time in steps of 10 ms. One start takes too little time for
such a step."""
_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANK", "STEPSET_"))}


def rows(runs: int = 20) -> list[Row]:
    """Returns one row for each mode of the agent.

    The modes are:

    - `run`
    - `run` with a launcher, in a new pod
    - `rank`, executed from the agent's file
    - `rank`, executed from the compiled copy of the agent's file
    """
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory, "ours", "agent.py"), Path(directory, "theirs", "agent.py")
        before = subprocess.run(["git", "-C", ROOT, "show", BEFORE], capture_output=True, check=True).stdout
        for file, content in ((ours, BUILT_FILE.read_bytes()), (theirs, before)):
            file.parent.mkdir()
            file.write_bytes(content)
        rank = ["rank", "--dir", directory, "--", "true"]
        modes = {
            "run": lambda file: _starts(file, ["run", _config(file, processes=1), "--", "true"]),
            "run of a launcher and one rank in a new pod": _launches,
            "rank, from the file (MPI)": lambda file: _starts(file, rank),
            "rank, from the compiled copy": lambda file: _starts(_compiled(file), rank),
        }
        result = []
        for mode, start in modes.items():
            pair = paired(start(ours), start(theirs), runs)
            wall, cpu = pair.ratio("wall"), pair.ratio("cpu")
            each = sum(sample.cpu for sample in pair.ours) / len(pair.ours) / STARTS * 1000
            measured = f"{wall:.2f} x wall, {cpu:.2f} x CPU ({each:.0f} ms CPU)"
            result.append(Row(f"agent start, `{mode}`", measured, "<= 1.05 x CPU", cpu <= 1.05))
        return result


def _starts(file: Path, words: list[str], directory: Path | None = None) -> Callable[[], None]:
    """Returns a function that starts an agent STARTS times.

    Args:
        file: the path of the agent's file.
        words: the arguments of the agent.
        directory: the directory of the agent. It is deleted before each start. Therefore the agent has no compiled
            copy, as in a new pod.
    """
    command = [sys.executable, "-I", "-S", str(file), *words]
    env = {**_ENV, "PYTHONDONTWRITEBYTECODE": "1"} if directory else _ENV

    def run() -> None:
        for _ in range(STARTS):
            if directory:
                shutil.rmtree(directory, ignore_errors=True)
            subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)

    return run


def _launches(file: Path) -> Callable[[], None]:
    directory = file.with_name("pod")
    launcher = ["/bin/sh", "-c", 'exec "$@"', "sh"]
    config = _config(file.with_name("launch"), dir=str(directory), launcher=launcher, program=["true"])
    return _starts(file, ["run", config, "--", "x"], directory)


def _config(file: Path, **more: object) -> str:
    """Writes a configuration to the directory of an agent's file, and returns the path of the configuration."""
    path = file.with_suffix(".json")
    path.write_text(json.dumps({"version": 1, "group": "node", "dir": str(file.parent), **more}))
    return str(path)


def _compiled(file: Path) -> Path:
    """Returns the path of the compiled copy of the agent.

    The agent passes this path to its launcher. Here, the launcher is `echo`, which prints the path.
    """
    config = _config(file, launcher=["echo"], program=["true"])
    command = [sys.executable, "-I", "-S", str(file), "run", config, "--", "x"]
    words = subprocess.run(command, env=_ENV, capture_output=True, text=True, check=True).stdout.split()
    return next(Path(word) for word in words if word.endswith(".pyc"))
