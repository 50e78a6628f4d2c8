"""After the failure of a rank of torchrun, only its lines are shown; while a run is stopped, no tracebacks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
# The other ranks notice the end of rank 2 a second later. The agent polls for the end of a rank. If a rank is ended by
# SIGTERM and others lose their connection to it within the interval, only the times tell which came first.
ENDS = """
import logging, os, signal, sys, time, torch.distributed

torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
print("ready", flush=True)
while torch.distributed.get_rank() != 2:
    time.sleep(1)
    torch.distributed.barrier()
{end}
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


@pytest.mark.parametrize(
    ("end", "printed"),
    [
        ("sys.exit(3)", []),
        ("raise SystemExit('the data set is empty')", ["[rank 2] the data set is empty"]),
        ("logging.error('shard 17 is bad'); os._exit(1)", ["[rank 2] ERROR:root:shard 17 is bad"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", []),
        ("os.kill(os.getpid(), signal.SIGTERM)", []),
    ],
)
def test_a_rank_that_ends_without_a_traceback_is_a_first_failure_too(
    tmp_path: Path, end: str, printed: list[str]
) -> None:
    ended = stepset(tmp_path, ENDS.format(end=end), "run", "train.py", *TORCHRUN)
    assert ended.returncode in (1, 3)
    assert [line for line in ended.stdout.splitlines() if "ready" not in line] == printed
    assert re.search(r"omitted after the first failure: \d+ lines ", ended.stderr)
    assert "first failure rank 2, " in ended.stderr


@pytest.mark.parametrize("why", ["SIGINT", "deadline"])
def test_a_run_that_is_stopped_shows_no_tracebacks(tmp_path: Path, why: str) -> None:
    (tmp_path / "train.py").write_text(ENDS.format(end="import time; time.sleep(600)"))
    limit = ("--deadline", "30s") if why == "deadline" else ()
    command = [STEPSET, "run", "train.py", *TORCHRUN, *limit]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        ready = [run.stdout.readline() for _ in range(4)]
        if why == "SIGINT":
            run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=300)
    assert (run.returncode, all("ready" in line for line in ready)) == (130 if why == "SIGINT" else 4, True)
    assert out == ""
    assert re.search(r"omitted while the run was stopped: \d+ lines ", err)
