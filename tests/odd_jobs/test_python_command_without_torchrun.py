"""A torch job of several ranks whose command runs Python directly, without torchrun."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import request

ODD_JOB = OddJob(
    job={"num_nodes": 2, "procs_per_node": 2, "command": ["python3", "train.py"]},
    expected="A note states that one process runs in each node; before, the run reported 4 ranks and success.",
    source="torch 2.15 distributed/run.py: only torchrun reads PET_* and sets RANK and WORLD_SIZE",
)


def notes(**fields: object) -> list[str]:
    plan = request(**{**ODD_JOB.job, **fields}).plan
    return [each for each in plan.notes if each.startswith("command: ")]


def test_the_note_names_the_remedy() -> None:
    [note] = notes()
    assert note.startswith("command: python3 train.py starts 2 processes, one in each node, instead of the 4 ranks")
    assert note.endswith("; torchrun starts the ranks if you give script: train.py instead of command")


@pytest.mark.parametrize(
    "remedy",
    [
        {"command": ["torchrun", "train.py"]},
        {"framework": {"kind": "torch", "launcher": "none"}},
        {"framework": "plain", "procs_per_node": "auto"},
        {"num_nodes": 1, "procs_per_node": 1},
    ],
)
def test_each_remedy_has_no_note(remedy: dict[str, object]) -> None:
    assert notes(**remedy) == []


def test_a_shell_script_may_start_torchrun_and_gets_a_note() -> None:
    [note] = [each for each in request(**{**ODD_JOB.job, "command": ["bash", "run.sh"]}).plan.notes if "must" in each]
    assert note.startswith("command: bash run.sh must start the 4 ranks (num_nodes: 2, procs_per_node: 2) itself")
