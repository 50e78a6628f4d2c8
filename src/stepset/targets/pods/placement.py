"""Determines the machines on which the pods of a group may run.

The job's `scheduling` applies only to the nodes. Each role has its own field `scheduling`. The field
`scheduling.launcher` applies to a launcher that is not a node.

These fields are separate because machines with accelerators usually have a taint. The admission plugin
ExtendedResourceToleration adds the toleration for the taint only to pods that request an accelerator (kubernetes v1.36
plugin/pkg/admission/extendedresourcetoleration). If the launcher had the node selector of such machines, it would
never be scheduled, because it does not have the toleration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset.plan.model import LAUNCHER, NODE, PodGroup
from stepset.spec.template import pod_annotations
from stepset.targets.metadata import GROUP, RUN

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.plan.model import LaunchPlan
    from stepset.spec.job import TrainingJob
    from stepset.spec.parts import Placement

PLACEMENT_FIELDS = frozenset({"nodeSelector", "tolerations", "affinity", "nodeName", "topologySpreadConstraints"})
"""The fields of a pod spec that select machines. In `pod_template`, these fields apply only to the nodes."""

_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""With this annotation, an administrator labels the machines of a domain with the name of the Job that may use the
machines. JobSet then sets a node selector and a toleration (jobset v0.12.0 pkg/controllers/jobset_controller.go,
constructJob).
"""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_KUEUE = "kueue.x-k8s.io/podset-"
_KUEUE_GROUP = f"{_KUEUE}group-name"


def placement_of(job: TrainingJob, group: PodGroup) -> Placement:
    """Returns the placement that the job specifies for a group's pods: a node selector, tolerations and an affinity."""
    if group.in_world:
        return job.scheduling
    return group.role.scheduling if group.role else job.scheduling.launcher


def exclusive_group(plan: LaunchPlan) -> str:
    """Returns the name of the group to which `scheduling.topology.exclusive` applies.

    The result is the group of the nodes. If the launcher is the only node, the result is the group of the launcher.
    """
    return NODE if plan.has_group(NODE) else plan.success.group


def node_selector_strategy(job: TrainingJob) -> dict[str, str]:
    """Returns the annotation with which the job selects JobSet's node-selector strategy, or an empty mapping.

    JobSet's webhook reads the annotation from the pods, and the controller reads the annotation from the Job of the
    pods. If only the pods have the annotation, JobSet ignores `scheduling.topology.exclusive`.
    """
    given = {**job.annotations, **pod_annotations(job.pod_template)}
    return {_NODE_SELECTOR: str(given[_NODE_SELECTOR])} if _NODE_SELECTOR in given else {}


def affinity_of(job: TrainingJob, plan: LaunchPlan, run: str, group: PodGroup) -> dict[str, Any]:
    """Returns the affinity of the pods of a group.

    The result contains the affinity of `placement_of`. If the job sets `scheduling.topology.exclusive`, the pods of the
    launcher and the roles also prefer the following machines:

    - Machines outside all domains.
    - Machines in a domain in which other pods of the launcher and the roles already run.

    Without these preferences, the pods could occupy all domains. The nodes would then not start, because they need a
    domain without other pods of JobSets (jobset v0.12.0 pkg/webhooks/pod_webhook.go).
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
    """Returns the path of the job file's field that `placement_of` reads."""
    if group.in_world:
        return "scheduling"
    return "scheduling.launcher" if group.name == LAUNCHER else f"roles.{group.name}.scheduling"


def with_own_topology(template: Mapping[str, Any], group: PodGroup) -> dict[str, Any]:
    """Removes Kueue's topology annotations from a pod template, unless it is the template of the nodes.

    Kueue rejects a topology request if the ResourceFlavor of the pods has no topology (kueue v0.18.2
    pkg/scheduler/flavorassigner/tas_flavorassigner.go). The ResourceFlavor of pods without accelerators often has no
    topology. If the annotation `podset-group-name` assigns the launcher to the group of the nodes, the launcher keeps
    the annotations.
    """
    metadata = template["metadata"]
    annotations = metadata.get("annotations") or {}
    if group.in_world or (group.name == LAUNCHER and _KUEUE_GROUP in annotations):
        return dict(template)
    kept = {key: value for key, value in annotations.items() if not key.startswith(_KUEUE)}
    return dict(template) if kept == annotations else {**template, "metadata": {**metadata, "annotations": kept}}
