"""Labels and annotations that identify the objects of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepset.plan.program import program_text
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
"""A label of the workload while the submission of the run is incomplete. stepset finds incomplete runs by this
label."""
SPEC_HASH = f"{PREFIX}spec-hash"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""The label with the name of the WorkloadPriorityClass, which is the run's priority in a Kueue queue.

The `labels` of a job may contain this label.
"""
PARTIAL_ADMISSION = "kueue.x-k8s.io/job-min-parallelism"
"""An annotation of a Job: the number of pods without which Kueue does not admit the Job."""

# Only the workload has the following annotations. Processes that observe a run read these annotations
# (docs/design/kubernetes.md).
WORLD_SIZE = f"{PREFIX}world-size"
RANKS = f"{PREFIX}ranks"
MIN_NODES = f"{PREFIX}min-nodes"
"""The minimum number of nodes with which an elastic world trains."""
LOST_NODE_AFTER = f"{PREFIX}lost-node-after"
PROGRAM = f"{PREFIX}program"
SUBMITTED_BY = f"{PREFIX}submitted-by"
"""The account that submitted the run. An account that may write workloads can write any name, so the name is no
proof."""
VERDICT = f"{PREFIX}verdict"
TTL = f"{PREFIX}ttl"
"""The TTL of a run with a TrainJob: the number of seconds between the end of the run and the deletion of its objects.

The annotation is necessary because a TrainJob has no field for a TTL.
"""

TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""A label of a Job in a JobSet, with the name of a step. Trainer's controller and tools read this label."""


def labels(request: RenderRequest) -> dict[str, str]:
    """Returns the labels of every object of a run. The labels of the job cannot replace the labels of stepset."""
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
    """Returns the `metadata` of one object of a run."""
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
    """Returns the `metadata` of the workload, which has the name of the run."""
    plan, restart = request.plan, request.job.restart
    program = program_text(request.job)
    ranks = {group: [held.first, held.per_pod] for group, held in rank_ranges(plan).items()}
    known = {
        **({PROGRAM: program} if program else {}),
        **({WORLD_SIZE: str(plan.world.size)} if plan.world.size is not None else {}),
        **({RANKS: json.dumps(ranks)} if ranks else {}),
        **({MIN_NODES: str(plan.world.elastic[0])} if plan.world.elastic else {}),
        **({LOST_NODE_AFTER: str(restart.lost_node_after)} if restart.lost_node == "release" else {}),
    }
    annotations = {**(more_annotations or {}), **known}
    made = metadata(request, request.run, more_labels=more_labels, more_annotations=annotations)
    return {**made, **without_empty(ownerReferences=[dict(request.owned_by)] if request.owned_by else None)}


def pod_metadata(request: RenderRequest, group: str) -> dict[str, Any]:
    """Returns the `metadata` of the pod template of a group.

    The metadata disables Istio's sidecar. The sidecar would delay the start of the pod and would never exit. There are
    both a label and an annotation, because some versions of Istio read only one of them.
    """
    off = {"sidecar.istio.io/inject": "false"}
    return {
        "labels": {**labels(request), GROUP: group, **off},
        "annotations": {**request.job.annotations, **off},
    }
