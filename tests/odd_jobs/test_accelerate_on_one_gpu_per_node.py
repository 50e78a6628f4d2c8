"""A job of several nodes with one GPU each, whose command is `accelerate launch train.py`."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import request

ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "resources_per_node": {"gpus": 1},
        "command": ["accelerate", "launch", "train.py"],
    },
    expected="A note states that each node trains alone; before, the run succeeded without one.",
    source="accelerate 1.15 commands/launch.py, launch_command: without multi_gpu, simple_launcher starts one process",
)


def notes(**fields: object) -> list[str]:
    plan = request(**{**ODD_JOB.job, **fields}).plan
    return [each for each in plan.notes if each.startswith("command: ")]


def test_the_note_names_the_option() -> None:
    [note] = notes()
    assert note.startswith("command: accelerate launch without --multi_gpu starts one process in each of the 2 nodes")


@pytest.mark.parametrize(
    "remedy",
    [
        {"command": ["accelerate", "launch", "--multi_gpu", "train.py"]},
        {"command": ["torchrun", "train.py"]},
        {"resources_per_node": {"gpus": 4}},
        {"num_nodes": 1},
    ],
)
def test_each_form_that_connects_the_ranks_has_no_note(remedy: dict[str, object]) -> None:
    assert notes(**remedy) == []
