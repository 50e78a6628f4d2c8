"""Labels and annotations that identify the objects of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepset.plan.ranks import rank_ranges
from stepset.targets.optional_fields import without_empty

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

# On the workload only, for processes that read a run from its objects (docs/design/kubernetes.md).
WORLD_SIZE = f"{PREFIX}world-size"
RANKS = f"{PREFIX}ranks"
MIN_NODES = f"{PREFIX}min-nodes"
"""Of an elastic world: the minimum number of nodes with which it trains."""
LOST_NODE_AFTER = f"{PREFIX}lost-node-after"
VERDICT = f"{PREFIX}verdict"
TTL = f"{PREFIX}ttl"
"""Of a TrainJob: it may be deleted this many seconds after the end of the run. Trainer's controller has no TTL."""

TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of a Job's template: the step of the TrainJob, which Trainer's controller and tools read."""


def labels(request: RenderRequest) -> dict[str, str]:
    """Labels of every object of a run; the job's own come first and cannot replace stepset's."""
    made = {**request.job.labels, RUN: request.run, JOB: request.job.name}
    if request.owner:
        made[OWNER_HASH] = request.owner
    return made


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
    """`metadata` of the top-level object, which has the run's name."""
    plan, restart = request.plan, request.job.restart
    ranks = {group: [held.first, held.per_pod] for group, held in rank_ranges(plan).items()}
    known = {
        **({WORLD_SIZE: str(plan.world.size)} if plan.world.size is not None else {}),
        **({RANKS: json.dumps(ranks)} if ranks else {}),
        **({MIN_NODES: str(plan.world.elastic[0])} if plan.world.elastic else {}),
        **({LOST_NODE_AFTER: str(restart.lost_node_after)} if restart.lost_node == "release" else {}),
    }
    annotations = {**(more_annotations or {}), **known}
    made = metadata(request, request.run, more_labels=more_labels, more_annotations=annotations)
    return {**made, **without_empty(ownerReferences=[dict(request.owned_by)] if request.owned_by else None)}


def pod_metadata(request: RenderRequest, group: str) -> dict[str, Any]:
    """`metadata` of a group's pod template.

    Both a label and an annotation disable Istio's sidecar, which would delay the start and never end: versions of Istio
    differ in which of them they read.
    """
    off = {"sidecar.istio.io/inject": "false"}
    return {
        "labels": {**labels(request), GROUP: group, **off},
        "annotations": {**request.job.annotations, **off},
    }
