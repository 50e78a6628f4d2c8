"""A torch job of several ranks whose command runs Python directly, without torchrun."""

from __future__ import annotations

import pytest

from stepset.plan.values import literal_words
from tests.odd_jobs import OddJob
from tests.targets.making import request

ODD_JOB = OddJob(
    job={"num_nodes": 2, "procs_per_node": 2, "command": ["python3", "train.py"]},
    expected="torchrun is put before the command; before, each node trained alone, and the run succeeded.",
    source="torch 2.15 distributed/run.py: only torchrun reads PET_* and sets RANK and WORLD_SIZE",
)


def command(**fields: object) -> list[str]:
    return literal_words(request(**{**ODD_JOB.job, **fields}).plan.group("node").command)


def test_torchrun_starts_the_ranks() -> None:
    assert command() == ["torchrun", "--no-python", "python3", "train.py"]


@pytest.mark.parametrize(
    "other",
    [
        {"framework": {"kind": "torch", "launch": "command"}},
        {"framework": {"kind": "torch", "launcher": "none"}},
        {"framework": "plain", "procs_per_node": "auto"},
        {"num_nodes": 1, "procs_per_node": 1},
    ],
)
def test_other_jobs_run_the_command_itself(other: dict[str, object]) -> None:
    assert command(**other) == ["python3", "train.py"]


def test_a_shell_script_may_start_torchrun_and_gets_a_note() -> None:
    [note] = [each for each in request(**{**ODD_JOB.job, "command": ["bash", "run.sh"]}).plan.notes if "must" in each]
    assert note.startswith("command: bash run.sh must start the 4 ranks (num_nodes: 2, procs_per_node: 2) itself")
