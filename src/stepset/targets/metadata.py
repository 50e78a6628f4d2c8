"""Labels and annotations that identify the objects of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepset.plan.ranks import rank_ranges
from stepset.targets.optional_fields import given

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.targets.request import RenderRequest

PREFIX = "stepset.dev/"
RUN = f"{PREFIX}run"
JOB = f"{PREFIX}job"
GROUP = f"{PREFIX}group"
OWNER_HASH = f"{PREFIX}owner-hash"
SUBMISSION = f"{PREFIX}submission"
"""A label, so that incomplete submissions can be listed."""
SPEC_HASH = f"{PREFIX}spec-hash"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

# On the workload only: what a process that has only the run's objects needs (docs/design/kubernetes.md).
WORLD_SIZE = f"{PREFIX}world-size"
RANKS = f"{PREFIX}ranks"
LOST_NODE_AFTER = f"{PREFIX}lost-node-after"
VERDICT = f"{PREFIX}verdict"

TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job's template: its part in a TrainJob, which Trainer's controller and tooling read."""


def labels(request: RenderRequest) -> dict[str, str]:
    """Labels of every object of a run; the job's own come first and cannot replace stepset's."""
    return {**request.job.labels, RUN: request.run, JOB: request.job.name, **given(**{OWNER_HASH: request.owner})}


def metadata(
    request: RenderRequest,
    name: str,
    *,
    more_labels: dict[str, str] | None = None,
    more_annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`metadata` of one object."""
    return {
        "name": name,
        **given(namespace=request.namespace),
        "labels": {**labels(request), **(more_labels or {})},
        "annotations": {**request.job.annotations, **(more_annotations or {}), SPEC_HASH: request.spec_hash},
    }


def workload_metadata(
    request: RenderRequest,
    *,
    more_labels: dict[str, str] | None = None,
    more_annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`metadata` of the top-level object, which has the run's name."""
    plan, restart = request.plan, request.job.restart
    ranks = {group: [held.first, held.per_pod] for group, held in rank_ranges(plan).items()}
    known = {
        **({WORLD_SIZE: str(plan.world.size)} if plan.world.size is not None else {}),
        **({RANKS: json.dumps(ranks)} if ranks else {}),
        **({LOST_NODE_AFTER: str(restart.lost_node_after)} if restart.lost_node == "release" else {}),
    }
    annotations = {**(more_annotations or {}), **known}
    made = metadata(request, request.run, more_labels=more_labels, more_annotations=annotations)
    return {**made, **given(ownerReferences=[dict(request.owned_by)] if request.owned_by else None)}


def pod_metadata(request: RenderRequest, group: str) -> dict[str, Any]:
    """`metadata` of a group's pod template.

    Istio's sidecar would delay the start and never end; both forms are needed, for different versions of Istio.
    """
    off = {"sidecar.istio.io/inject": "false"}
    return {
        "labels": {**labels(request), GROUP: group, **off},
        "annotations": {**request.job.annotations, **off},
    }
