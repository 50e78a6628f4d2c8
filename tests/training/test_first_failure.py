"""After an error of one rank of torchrun, only that rank's traceback is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

STEPSET = Path(sys.executable).parent / "stepset"
TORCHRUN = ("-n", "2", "-p", "2", "--framework", "torch")

FAIL = """
import torch.distributed

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.distributed.barrier()
print("ready", flush=True)
if rank == 1:
    raise ValueError("bad batch")
torch.distributed.barrier()
"""
KILL = """
import os, signal, time

print("ready", flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def stepset(directory: Path, script: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a directory with a script `train.py`."""
    (directory / "train.py").write_text(script)
    return subprocess.run([STEPSET, *argv], cwd=directory, capture_output=True, text=True, timeout=300)


def test_only_the_traceback_of_the_rank_that_failed_first_is_shown(tmp_path: Path) -> None:
    ended = stepset(tmp_path, FAIL, "run", "train.py", *TORCHRUN)
    assert ended.returncode == 1
    assert [line for line in ended.stdout.splitlines() if "ready" not in line] == [
        "[rank 1] Traceback (most recent call last):",
        f'[rank 1]   File "{tmp_path}/train.py", line 9, in <module>',
        '[rank 1]     raise ValueError("bad batch")',
        "[rank 1] ValueError: bad batch",
    ]
    omitted = re.search(r"omitted after the first failure: (\d+) lines .*; stepset logs (\S+) shows", ended.stderr)
    assert omitted is not None
    stored = stepset(tmp_path, FAIL, "logs", omitted[2]).stdout.splitlines()
    assert len(stored) == len(ended.stdout.splitlines()) + int(omitted[1])
    assert any("ChildFailedError" in line for line in stored)
    assert "ranks running" not in ended.stderr
    assert "[rank1]" not in ended.stdout + ended.stderr


def test_everything_is_shown_if_verbose(tmp_path: Path) -> None:
    ended = stepset(tmp_path, FAIL, "run", "train.py", *TORCHRUN, "--verbose")
    assert "ChildFailedError" in ended.stdout
    assert "omitted" not in ended.stderr


def test_the_launchers_lines_are_shown_after_a_sigkill(tmp_path: Path) -> None:
    ended = stepset(tmp_path, KILL, "run", "train.py", *TORCHRUN)
    assert "(SIGKILL)" in ended.stdout
    assert "omitted" not in ended.stderr
