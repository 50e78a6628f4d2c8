"""Test scripts of Accelerate's package, unchanged, on two nodes: each rank prints what it prints under plain torchrun.

`accelerate launch --cpu` starts one process, so torchrun is the launcher to compare with. docs/testing/differential.md
states which scripts are left out, and why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import stepset
from stepset.run_status import LogLine

SCRIPTS = ("test_cli", "test_script", "test_sync")
_PACKAGE = "accelerate.test_utils.scripts"
_VARIABLES = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
_DIFFERS = re.compile(r"Local process index: |\[\d{4}-\d\d-\d\d |$")
"""The ranks are on one node under torchrun, and on two under stepset; DeepSpeed's log lines contain the time."""


class Lines:
    """Records what each source prints."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = defaultdict(list)

    def on_line(self, line: LogLine) -> None:
        self.of[line.source].append(line.text)

    def on_status(self, status: stepset.RunStatus) -> None:
        pass


def _under_torchrun(module: str, directory: Path) -> list[list[str]]:
    """Returns the lines that each of two ranks prints."""
    words = ["--standalone", "--nproc-per-node", "2", "--redirects", "1", "--log-dir", str(directory), "-m", module]
    program = [sys.executable, "-m", "torch.distributed.run", *words]  # PATH may have another torchrun
    done = subprocess.run(program, env={**os.environ, **_VARIABLES}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    files = sorted(directory.glob("*/attempt_0/*/stdout.log"))
    return [file.read_text("utf-8").splitlines() for file in files]


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_rank_prints_what_it_prints_under_torchrun(script: str, tmp_path: Path) -> None:
    module = f"{_PACKAGE}.{script}"
    expected = _under_torchrun(module, tmp_path / "torchrun")
    assert len(expected) == 2 and any(expected)
    job = {"name": "accelerate", "module": module, "num_nodes": 2, "procs_per_node": 1, "deadline": "10m"}
    lines = Lines()
    stepset.run({**job, "env": _VARIABLES}, base_dir=tmp_path, listener=lines)
    for rank, printed in enumerate(expected):
        wanted = [line for line in printed if not _DIFFERS.match(line)]
        assert [line for line in lines.of[f"rank {rank}"] if line in wanted] == wanted
