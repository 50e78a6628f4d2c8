"""The start time of the agent, compared with that of its earlier version, which was a single source file."""

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
"""The last commit with the single file."""
STARTS = 10
"""The number of starts in one sample; several, because the system counts CPU time in steps of 10 ms."""
_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANK", "STEPSET_"))}


def rows(runs: int = 20) -> list[Row]:
    """Returns one row per mode.

    The modes are `run`, `run` with a launcher in a new pod, `rank` from the agent's file, and `rank` from the compiled
    copy of the file.
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
        file: the agent's file.
        words: its command line.
        directory: the agent's directory, deleted before each start, so that it has no compiled copy, as in a new pod.
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
    """Writes a configuration beside an agent's file; returns its path."""
    path = file.with_suffix(".json")
    path.write_text(json.dumps({"version": 1, "group": "node", "dir": str(file.parent), **more}))
    return str(path)


def _compiled(file: Path) -> Path:
    """Returns the path of the compiled copy that an agent passes to a launcher, here `echo`."""
    config = _config(file, launcher=["echo"], program=["true"])
    command = [sys.executable, "-I", "-S", str(file), "run", config, "--", "x"]
    words = subprocess.run(command, env=_ENV, capture_output=True, text=True, check=True).stdout.split()
    return next(Path(word) for word in words if word.endswith(".pyc"))
