"""The quota of a ClusterQueue that all pods of a run together can never have."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.submit.quotas import cluster_queue_lines

PODS: list[tuple[dict[str, Any], int]] = [({"containers": [{"resources": {"requests": {"cpu": "4"}}}]}, 2)]


def queue(*flavors: dict[str, Any], **spec: Any) -> dict[str, Any]:
    quotas = [{"name": f"f{n}", "resources": [{"name": "cpu", **each}]} for n, each in enumerate(flavors)]
    return {"metadata": {"name": "gpus"}, "spec": {"resourceGroups": [{"flavors": quotas}], **spec}}


def test_a_note_states_the_resource_for_which_the_queue_has_no_quota() -> None:
    requests = {"cpu": "1", "nvidia.com/gpu": "1", "memory": "0"}
    problems, (note,) = cluster_queue_lines(
        queue({"nominalQuota": 8}), [({"containers": [{"resources": {"requests": requests}}]}, 1)]
    )
    assert problems == []
    assert note.startswith(
        "ClusterQueue gpus: the queue has no quota for nvidia.com/gpu, so Kueue does not admit the run"
    )


@pytest.mark.parametrize(
    ("cluster_queue", "quota"),
    [
        (queue({"nominalQuota": "7500m"}), "7500m"),
        (queue({"nominalQuota": 3}, {"nominalQuota": 4}), "7"),
        (queue({"nominalQuota": 3, "borrowingLimit": 4}, cohortName="all"), "7"),
        (queue({"nominalQuota": 8}), ""),
        (queue({"nominalQuota": 4}, {"nominalQuota": 4}), ""),
        (queue({"nominalQuota": 1}, cohortName="all"), ""),
        (queue({"nominalQuota": 1}, cohort="all"), ""),
        (queue(), ""),
    ],
)
def test_a_problem_states_the_quota_that_the_pods_exceed(cluster_queue: dict[str, Any], quota: str) -> None:
    words = f"ClusterQueue gpus: all pods of the run need cpu 8 together, but the quota is {quota}, so Kueue can never"
    problems, notes = cluster_queue_lines(cluster_queue, PODS)
    assert [problem.startswith(words) for problem in problems] == ([True] if quota else [])
    assert notes == []


def test_a_quota_that_a_part_of_the_pods_does_not_exceed_is_a_note() -> None:
    """Kueue may admit a part of the pods of a Job."""
    problems, (note,) = cluster_queue_lines(queue({"nominalQuota": 4}), PODS, partial=True)
    assert problems == []
    assert "Kueue can never admit the run" in note
