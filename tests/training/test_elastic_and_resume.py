"""Worlds whose size changes, and runs that resume from a checkpoint."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from stepset.backends import backend_of
from stepset.backends.base import RunRequest
from stepset.run_status import Phase, RunStatus
from stepset.sources import read_sources
from stepset.spec import parse_job
from tests.training.conftest import EXAMPLES

AGENT = re.compile(r"/agent[^\0/]*\.pyc?\0run\0")
"""The agent's file, or its compiled copy, in the command line of a process."""


def _agent_of(run: str, pod: str) -> int:
    """Returns the pid of the agent of a simulated pod."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if AGENT.search(words) and run in words and f"/{pod}/" in words:
                return int(entry.name)
    raise AssertionError(f"no agent of pod {pod} runs")


class _KillsAtStep:
    """Kills one simulated pod as soon as a run reports a step, before it reports another."""

    def __init__(self, step: int, pod: str) -> None:
        self._step, self._pod = step, pod
        self._done = False

    def on_line(self, line: object) -> None:
        pass

    def on_status(self, status: RunStatus) -> None:
        if not self._done and status.progress and (status.progress.step or 0) >= self._step:
            self._done = True
            os.kill(_agent_of(status.name, self._pod), signal.SIGKILL)


def test_elastic_torch_continues_after_a_lost_node_and_its_return(tmp_path: Path) -> None:
    # The last call timeout: how long the existing nodes wait for more nodes, each of which has to import torch first.
    elastic = {"min_nodes": 1, "max_nodes": 2, "max_restarts": 5, "rdzv_conf": {"last_call_timeout": 30}}
    job = parse_job(
        {
            "name": "elastic",
            "framework": {"kind": "torch", "elastic": elastic},
            "num_nodes": 2,
            "procs_per_node": 1,
            "script": "torch/elastic.py",
            "args": ["--steps", "60", "--step-seconds", "0.5"],
            "checkpoint_dir": str(tmp_path / "checkpoints"),
            "deadline": "10m",
        }
    )
    (tmp_path / "checkpoints").mkdir()
    request = RunRequest(job, read_sources(job, EXAMPLES))
    status = backend_of("local").start(request, _KillsAtStep(5, "node-1")).wait()

    assert status.phase is Phase.SUCCEEDED, status.failure
    sizes = [world["world_size"] for world in status.result["worlds"]]
    assert sizes[0] == 2, "it began with both nodes"
    assert sizes[-1] == 2, "the lost node returned"
    assert status.result["world_size"] == 2
    assert status.result["rank_sum"] == 3
    assert status.result["worlds"][-1]["from_step"] > 0, "it went on from its checkpoint"


def test_a_restarted_run_continues_from_its_checkpoint(tmp_path: Path) -> None:
    job = parse_job(
        {
            "name": "resume",
            "num_nodes": 1,
            "procs_per_node": 2,
            "script": "torch/train.py",
            "args": ["--epochs", "40"],
            "checkpoint_dir": str(tmp_path / "checkpoints"),
            "restart": {"max_restarts": 1},
            "deadline": "10m",
        }
    )
    (tmp_path / "checkpoints").mkdir()
    request = RunRequest(job, read_sources(job, EXAMPLES))
    status = backend_of("local").start(request, _KillsAtStep(2, "node-0")).wait()

    assert status.phase is Phase.SUCCEEDED, status.failure
    assert status.attempt == 1
    assert status.result["first_epoch"] >= 2
    assert (status.result["world_size"], status.result["rank_sum"], status.result["parameters_equal"]) == (2, 3, True)
    assert status.result["accuracy"] > 0.8
