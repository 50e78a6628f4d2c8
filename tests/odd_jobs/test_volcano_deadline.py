"""A deadline and restarts: with Volcano, each attempt would get the whole deadline again, and its end a restart."""

from __future__ import annotations

from tests.odd_jobs import OddJob
from tests.targets.making import of_kind, pod, workload

DEADLINE = {"deadline": "1h", "num_nodes": 2}
ODD_JOB = OddJob(
    job={**DEADLINE, "restart": {"max_restarts": 3}},
    expected="A run that exceeds its deadline fails at once, although restarts are left; Volcano refuses the job.",
    source="volcano master, August 2026, pkg/controllers/job/job_controller_util.go (applyPolicies); docs/targets.md",
    refused={
        "volcano": "deadline: a Volcano Job counts a pod that exceeds it as failed, and would start the gang again",
        "statefulset": "deadline: a StatefulSet has none",
        "job": "restart.max_restarts: target job cannot start the whole gang again",
    },
)


def test_in_a_jobset_the_deadline_is_final() -> None:
    rules = of_kind(ODD_JOB.render("jobset"), "JobSet")["spec"]["failurePolicy"]["rules"]
    assert rules[0] == {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}


def test_volcano_without_restarts_ends_the_job_at_the_deadline() -> None:
    objects = ODD_JOB.render("volcano", restart={})
    assert pod(objects)["spec"]["activeDeadlineSeconds"] == 3600
    assert workload(objects)["spec"]["policies"] == [{"events": ["PodFailed", "PodEvicted"], "action": "TerminateJob"}]
