"""A rack of their own for the nodes, and a gang scheduler: each would wait for the other."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"num_nodes": 2, "scheduling": {"gang": "coscheduling", "topology": {"exclusive": "cloud.example/rack"}}},
    expected="Refused: JobSet creates the other pods after the first one is scheduled, the gang schedules all or none.",
    source="jobset v0.12.0 pkg/webhooks/pod_webhook.go (ValidateCreate)",
    refused={
        **everywhere("scheduling.topology.exclusive: the run would never start with gang: coscheduling"),
        **dict.fromkeys(("statefulset", "job", "volcano"), "scheduling.topology.exclusive: only a JobSet has it"),
    },
)


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_a_gang_of_one_pod_or_a_queue_is_possible(target: str) -> None:
    scheduling = ODD_JOB.job["scheduling"]
    assert ODD_JOB.render(target, num_nodes=1)
    assert ODD_JOB.render(target, scheduling={**scheduling, "gang": "kueue", "queue_name": "team-a"})
