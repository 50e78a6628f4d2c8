"""MPI on one node, which is the launcher, in a gang."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import workload

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "mpi", "run_launcher_as_node": True},
        "scheduling": {"gang": "coscheduling", "min_member": 1},
    },
    expected="The gang is the launcher; before, stepset counted no pod in it, and refused min_member: 1.",
    source="docs/targets.md, Queues and gangs",
    refused={**WITHOUT_LAUNCHER, "volcano": "scheduling.gang: Volcano itself schedules the gang, not coscheduling"},
)


def test_volcano_counts_the_launcher() -> None:
    assert workload(ODD_JOB.render("volcano", scheduling={"min_member": 1}))["spec"]["minAvailable"] == 1


def test_more_than_the_launcher_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"scheduling.min_member: 2 is more than the gang's pods \(1\); lower it"):
        ODD_JOB.render("jobset", scheduling={"gang": "coscheduling", "min_member": 2})
