"""A job cannot set the labels and annotations by which stepset and the controllers recognize their objects."""

from __future__ import annotations

from typing import Any

import pytest

import stepset

KEYS = (
    "stepset.dev/run",
    "stepset.dev/verdict",
    "stepset.dev/anything",
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/restart-attempt",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "volcano.sh/task-index",
    "trainer.kubeflow.org/trainjob-ancestor-step",
)


def problems(**fields: Any) -> tuple[str, ...]:
    job = {"name": "job", "command": ["true"], "image": "train:1", **fields}
    with pytest.raises(stepset.BadInputError) as caught:
        stepset.render(job)
    return caught.value.problems


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("key", KEYS)
def test_a_reserved_key_is_rejected_wherever_a_job_can_set_it(key: str, kind: str) -> None:
    reason = f"{key}: is reserved, because stepset or a controller sets it; choose another key"
    assert f"{kind}.{reason}" in problems(**{kind: {key: "x"}})
    assert f"pod_template.metadata.{kind}.{reason}" in problems(pod_template={"metadata": {kind: {key: "x"}}})


@pytest.mark.parametrize("value", ["x", 7, ["x"]])
def test_metadata_that_is_no_mapping_is_rejected(value: object) -> None:
    assert any("is not a mapping" in line for line in problems(pod_template={"metadata": {"labels": value}}))


def test_other_keys_are_allowed() -> None:
    labels = {"team": "vision", "kueue.x-k8s.io/priority-class": "high", "volcano.sh/queue-name": "q"}
    job = {"name": "job", "command": ["true"], "image": "train:1", "labels": labels}
    *_, jobset = stepset.render({**job, "pod_template": {"metadata": {"annotations": labels}}})
    assert labels.items() <= jobset["metadata"]["labels"].items()
