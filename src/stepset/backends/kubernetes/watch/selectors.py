"""The collections in which the objects of runs are, and how each is selected. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.backends.kubernetes.api.resources import (
    EVENTS,
    JOBS,
    JOBSETS,
    PODS,
    QUEUE_WORKLOADS,
    Resource,
    resource_of,
)
from stepset.targets.identity import QUEUE_LABEL, RUN

_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_KUEUE_UID = "kueue.x-k8s.io/job-uid"

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Collection:
    """A collection of objects that concern one run, or the runs of a namespace.

    Args:
        path: its path.
        selectors: labelSelector, fieldSelector.
        wanted: whether an object that the server selected concerns the run.
        needed: without it nothing can be said of a run; others are left out where the server does not show them.
    """

    path: str
    selectors: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[Manifest], bool] = lambda _: True
    needed: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """What two reflectors of the same objects have in common."""
        return self.path, str(sorted(self.selectors.items()))


def of_run(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections of one run; that of its workload first.

    Args:
        namespace: the run's.
        workload: its workload, or apiVersion, kind and metadata of it.
    """
    name = str(workload["metadata"]["name"])
    itself = {"fieldSelector": f"metadata.name={name}"}
    found = [
        Collection(resource_of(workload).path(namespace), itself),
        Collection(PODS.path(namespace), {"labelSelector": f"{RUN}={name}"}),
        # A field selector takes one object, and these are several.
        Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, _concerns(name), needed=False),
    ]
    if workload["kind"] == "TrainJob":
        found.append(Collection(JOBSETS.path(namespace), itself, needed=False))
    if workload["kind"] in ("TrainJob", "JobSet"):
        found.append(Collection(JOBS.path(namespace), {"labelSelector": f"{_JOBSET_NAME}={name}"}, needed=False))
    if _is_queued(workload):
        of_it = {"labelSelector": f"{_KUEUE_UID}={workload['metadata']['uid']}"}
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), of_it, needed=False))
    return found


def of_namespace(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections that the runs of a namespace share; that of the workloads first.

    Args:
        namespace: the namespace.
        workload: the workload of one of the runs, or apiVersion, kind and metadata of it.
    """
    found = [
        *of_kind(namespace, resource_of(workload)),
        Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, needed=False),
    ]
    if _is_queued(workload):
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), needed=False))
    return found


def of_kind(namespace: str, workloads: Resource) -> list[Collection]:
    """Returns the collections of all runs of one kind, without their events.

    Args:
        namespace: the namespace.
        workloads: the kind of their workloads.
    """
    found = [
        Collection(workloads.path(namespace), {"labelSelector": RUN}),
        Collection(PODS.path(namespace), {"labelSelector": RUN}),
    ]
    if workloads.plural == "trainjobs":
        found.append(Collection(JOBSETS.path(namespace), {"labelSelector": RUN}, needed=False))
    if workloads.plural in ("trainjobs", "jobsets"):
        found.append(Collection(JOBS.path(namespace), {"labelSelector": _JOBSET_NAME}, needed=False))
    return found


def _is_queued(workload: Manifest) -> bool:
    return QUEUE_LABEL in (workload["metadata"].get("labels") or {})


def _concerns(name: str) -> Callable[[Manifest], bool]:
    """Whether an event is about an object whose name begins as the run's."""

    def wanted(event: Manifest) -> bool:
        about = event.get("involvedObject")
        named = str(about.get("name", "")) if isinstance(about, Mapping) else ""
        return named == name or named.startswith(f"{name}-")

    return wanted
