"""Where the pods of a group may run: the job's `scheduling` places the nodes; a separate launcher and each role have
a field of their own.

A pool of machines with accelerators usually has a taint. The admission plugin ExtendedResourceToleration adds the
toleration only to pods that request an accelerator (kubernetes v1.36 plugin/pkg/admission/extendedresourcetoleration).
A launcher with the selector of such a pool, and without the toleration, would never be scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset.plan.model import LAUNCHER, NODE, PodGroup
from stepset.targets.metadata import GROUP, RUN

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.plan.model import LaunchPlan
    from stepset.spec.job import TrainingJob
    from stepset.spec.parts import Placement

PLACEMENT_FIELDS = frozenset({"nodeSelector", "tolerations", "affinity", "nodeName", "topologySpreadConstraints"})
"""Fields of a pod that decide on which machines it may run; in `pod_template`, they are those of the nodes."""

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_KUEUE = "kueue.x-k8s.io/podset-"
_KUEUE_GROUP = f"{_KUEUE}group-name"


def placement_of(job: TrainingJob, group: PodGroup) -> Placement:
    """Returns the placement of a group's pods."""
    if group.in_world:
        return job.scheduling
    if group.name == LAUNCHER:
        return job.scheduling.launcher
    return next(role.scheduling for role in job.roles if role.name == group.name)


def exclusive_group(plan: LaunchPlan) -> str:
    """Returns the group that `scheduling.topology.exclusive` places: the nodes, or a launcher that is the only node."""
    return NODE if any(group.name == NODE for group in plan.groups) else plan.success.group


def affinity_of(job: TrainingJob, plan: LaunchPlan, run: str, group: PodGroup) -> dict[str, Any]:
    """Returns the affinity of a group's pods: that of `placement_of`, and two preferences if the nodes are exclusive.

    With `scheduling.topology.exclusive`, the nodes cannot use a domain in which another pod of a JobSet runs (jobset
    v0.12.0 pkg/webhooks/pod_webhook.go). So the other pods of the run prefer machines without the label of the
    domains, and the same domain as each other: spread over all domains, they would leave none for the nodes.
    """
    own, key, nodes = dict(placement_of(job, group).affinity), job.scheduling.topology.exclusive, exclusive_group(plan)
    if key is None or group.name == nodes:
        return own
    outside = {"weight": 100, "preference": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}}
    others = {"matchLabels": {RUN: run}, "matchExpressions": [{"key": GROUP, "operator": "NotIn", "values": [nodes]}]}
    together = {"weight": 100, "podAffinityTerm": {"topologyKey": key, "labelSelector": others}}
    return _with_preference(_with_preference(own, "nodeAffinity", outside), "podAffinity", together)


def _with_preference(affinity: Mapping[str, Any], kind: str, term: Mapping[str, Any]) -> dict[str, Any]:
    rules = affinity.get(kind) or {}
    return {**affinity, kind: {**rules, _PREFERRED: [*(rules.get(_PREFERRED) or ()), term]}}


def placement_field(job: TrainingJob, group: PodGroup) -> str:
    """Returns the field of the job file that contains `placement_of`."""
    if group.in_world:
        return "scheduling"
    return "scheduling.launcher" if group.name == LAUNCHER else f"roles.{group.name}.scheduling"


def with_own_topology(template: Mapping[str, Any], group: PodGroup) -> dict[str, Any]:
    """Returns a pod template; for pods outside the world, without the annotations that request a topology from Kueue.

    Kueue rejects that request for pods whose ResourceFlavor has no topology (kueue v0.18.2
    pkg/scheduler/flavorassigner/tas_flavorassigner.go); the flavor of pods without accelerators often has none.
    A launcher keeps the annotations if `podset-group-name` joins it to the nodes.
    """
    metadata = template["metadata"]
    annotations = metadata.get("annotations") or {}
    if group.in_world or (group.name == LAUNCHER and _KUEUE_GROUP in annotations):
        return dict(template)
    kept = {key: value for key, value in annotations.items() if not key.startswith(_KUEUE)}
    return dict(template) if kept == annotations else {**template, "metadata": {**metadata, "annotations": kept}}
