"""Worlds that change, and runs that go on where they stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from stepset.backends import backend_of
from stepset.backends.base import RunRequest
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.watch.state import Phase, RunStatus
from tests.training.conftest import EXAMPLES


def _agent_of(run: str, pod: str) -> int:
    """The pid of the agent that is a simulated pod."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "agent.py\0run" in words and run in words and f"/{pod}/" in words:
                return int(entry.name)
    raise AssertionError(f"no agent of pod {pod} runs")


class _Steps:
    """Remembers the last step a run told of."""

    def __init__(self) -> None:
        self.step = 0

    def on_line(self, line: object) -> None:
        pass

    def on_status(self, status: RunStatus) -> None:
        if status.progress and status.progress.step:
            self.step = status.progress.step

    def wait_for(self, step: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.step < step:
            assert time.monotonic() < deadline, f"step {step} was not reached"
            time.sleep(0.1)


def test_elastic_torch_loses_a_node_and_gets_it_back(tmp_path: Path) -> None:
    job = parse_job(
        {
            "name": "elastic",
            "framework": {
                "kind": "torch",
                "elastic": {"min_nodes": 1, "max_nodes": 2, "max_restarts": 5, "rdzv_conf": {"last_call_timeout": 3}},
            },
            "num_nodes": 2,
            "procs_per_node": 1,
            "script": "torch/elastic.py",
            "args": ["--steps", "60", "--step-seconds", "0.5"],
            "checkpoint_dir": str(tmp_path / "checkpoints"),
            "deadline": "5m",
        }
    )
    (tmp_path / "checkpoints").mkdir()
    steps = _Steps()
    handle = backend_of("local").start(RunRequest(job, read_sources(job, EXAMPLES)), steps)
    steps.wait_for(5, 120)
    os.kill(_agent_of(handle.name, "node-1"), signal.SIGKILL)
    status = handle.wait()

    assert status.phase is Phase.SUCCEEDED, status.failure
    sizes = [world["world_size"] for world in status.result["worlds"]]
    assert sizes[0] == 2, "it began with both nodes"
    assert sizes[-1] == 2, "the lost node came back"
    assert status.result["world_size"] == 2
    assert status.result["rank_sum"] == 3
    assert status.result["worlds"][-1]["from_step"] > 0, "it went on from its checkpoint"


def test_a_restarted_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    job = parse_job(
        {
            "name": "resume",
            "num_nodes": 1,
            "procs_per_node": 2,
            "script": "torch/train.py",
            "args": ["--epochs", "40"],
            "checkpoint_dir": str(tmp_path / "checkpoints"),
            "restart": {"max_restarts": 1},
            "deadline": "5m",
        }
    )
    (tmp_path / "checkpoints").mkdir()
    steps = _Steps()
    handle = backend_of("local").start(RunRequest(job, read_sources(job, EXAMPLES)), steps)
    steps.wait_for(2, 120)
    os.kill(_agent_of(handle.name, "node-0"), signal.SIGKILL)
    status = handle.wait()

    assert status.phase is Phase.SUCCEEDED, status.failure
    assert status.attempt == 1
    assert status.result["first_epoch"] >= 2
