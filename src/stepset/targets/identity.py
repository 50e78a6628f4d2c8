"""Labels and annotations: by them a run's objects are found again, and told from those of others."""

from __future__ import annotations

from typing import Any

from stepset.targets.request import RenderRequest

PREFIX = "stepset.dev/"
RUN = f"{PREFIX}run"
JOB = f"{PREFIX}job"
GROUP = f"{PREFIX}group"
OWNER_HASH = f"{PREFIX}owner-hash"
SPEC_HASH = f"{PREFIX}spec-hash"

TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job's template: which part of a TrainJob it is. Trainer's controller and its tooling look for it."""


def labels(request: RenderRequest) -> dict[str, str]:
    """Labels of every object of a run; the job's own come first and cannot replace stepset's."""
    owner = {OWNER_HASH: request.owner} if request.owner else {}
    return {**request.job.labels, RUN: request.run, JOB: request.job.name, **owner}


def metadata(
    request: RenderRequest,
    name: str,
    *,
    more_labels: dict[str, str] | None = None,
    more_annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`metadata` of one object.

    Args:
        request: what is rendered.
        name: the object's name.
        more_labels, more_annotations: this object's own.
    """
    return {
        "name": name,
        **({"namespace": request.namespace} if request.namespace else {}),
        "labels": {**labels(request), **(more_labels or {})},
        "annotations": {**request.job.annotations, **(more_annotations or {}), SPEC_HASH: request.spec_hash},
    }


def pod_metadata(request: RenderRequest, group: str) -> dict[str, Any]:
    """`metadata` of a group's pod template.

    Istio's sidecar would hold up the start and never end; both forms are read, depending on Istio's version.
    """
    off = {"sidecar.istio.io/inject": "false"}
    return {
        "labels": {**labels(request), GROUP: group, **off},
        "annotations": {**request.job.annotations, **off},
    }
