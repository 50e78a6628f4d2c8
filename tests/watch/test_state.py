"""A RunStatus is equal after JSON serialization, and data of earlier versions with fewer fields is read."""

from __future__ import annotations

import json

import pytest

from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset.watch.advice import ADVICE

FAILURE = Failure(
    FailureKind.UNSCHEDULABLE,
    "no room",
    ADVICE[FailureKind.UNSCHEDULABLE],
    tail=("a",),
    events=("b",),
    aftermath=("c",),
)
STATUS = RunStatus(
    "run",
    "job",
    "kubernetes",
    phase=Phase.PENDING,
    reason="Unschedulable",
    ranks=(RankStatus("rank 0", 0, "run-0"),),
    progress=Progress(step=3),
    notes=("note",),
    trouble=FAILURE,
)


@pytest.mark.parametrize("status", [STATUS, STATUS.with_(failure=FAILURE, trouble=None, phase=Phase.FAILED)])
def test_a_status_is_equal_after_json(status: RunStatus) -> None:
    data = json.loads(json.dumps(status.to_dict()))
    assert RunStatus.from_dict(data) == status


def test_a_status_without_the_field_trouble_is_read() -> None:
    data = STATUS.to_dict()
    del data["trouble"]
    assert RunStatus.from_dict(data) == STATUS.with_(trouble=None)
