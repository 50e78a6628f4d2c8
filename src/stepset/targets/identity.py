"""Labels and annotations: by them a run's objects are found again, and told from those of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepset.plan.ranks import rank_ranges

if TYPE_CHECKING:  # whoever reads runs needs the names below, and not pydantic
    from stepset.targets.request import RenderRequest

PREFIX = "stepset.dev/"
RUN = f"{PREFIX}run"
JOB = f"{PREFIX}job"
GROUP = f"{PREFIX}group"
OWNER_HASH = f"{PREFIX}owner-hash"
SUBMISSION = f"{PREFIX}submission"
"""A label, so that what was left half done can be asked for."""
SPEC_HASH = f"{PREFIX}spec-hash"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue's: the queue of a workload."""

# On the workload alone: what any process must know of a run that has only its objects (docs/design/kubernetes.md).
WORLD_SIZE = f"{PREFIX}world-size"
RANKS = f"{PREFIX}ranks"
LOST_NODE_AFTER = f"{PREFIX}lost-node-after"
VERDICT = f"{PREFIX}verdict"

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


def workload_metadata(
    request: RenderRequest,
    *,
    more_labels: dict[str, str] | None = None,
    more_annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`metadata` of the object on top, which is called as the run is.

    Args:
        request: what is rendered.
        more_labels, more_annotations: this target's own.
    """
    plan, restart = request.plan, request.job.restart
    ranks = {group: [held.first, held.per_pod] for group, held in rank_ranges(plan).items()}
    known = {
        **({WORLD_SIZE: str(plan.world.size)} if plan.world.size is not None else {}),
        **({RANKS: json.dumps(ranks)} if ranks else {}),
        **({LOST_NODE_AFTER: str(restart.lost_node_after)} if restart.lost_node == "release" else {}),
    }
    made = metadata(
        request, request.run, more_labels=more_labels, more_annotations={**(more_annotations or {}), **known}
    )
    return {**made, **({"ownerReferences": [dict(request.owned_by)]} if request.owned_by else {})}


def pod_metadata(request: RenderRequest, group: str) -> dict[str, Any]:
    """`metadata` of a group's pod template.

    Istio's sidecar would hold up the start and never end; both forms are read, depending on Istio's version.
    """
    off = {"sidecar.istio.io/inject": "false"}
    return {
        "labels": {**labels(request), GROUP: group, **off},
        "annotations": {**request.job.annotations, **off},
    }
