"""`Collection`, a set of objects to list and watch, and functions that return the collections of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stepset.backends.kubernetes.api.resources import (
    EVENTS,
    PODS,
    QUEUE_WORKLOADS,
    Manifest,
    Resource,
    resource_for,
    resource_of,
    target_of,
)
from stepset.targets.metadata import QUEUE_LABEL, RUN
from stepset.targets.workload_kinds import WORKLOAD_KINDS

KUEUE_UID = "kueue.x-k8s.io/job-uid"
"""The label of a Kueue Workload with the uid of the object that waits in the queue."""


@dataclass(frozen=True)
class Collection:
    """A set of objects of one run, or of all runs in a namespace.

    Args:
        path: the path of the request.
        selectors: the query parameters by which the server selects objects.
        wanted: a function that returns whether a selected object belongs to the collection.
        needed: whether these objects are necessary to compute the state of a run. If the account cannot read a
            collection and `needed` is False, the collection is ignored.
    """

    path: str
    selectors: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[Manifest], bool] = lambda _: True
    needed: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """The key of the collection's reflector: its path and selectors."""
        return self.path, str(sorted(self.selectors.items()))


def of_run(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections of one run. The first collection contains the workload.

    Only apiVersion, kind and metadata of `workload` are needed.
    """
    name = str(workload["metadata"]["name"])
    # A field selector can select only the events of one object, and a run has several objects.
    events = Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, concerns(name), needed=False)
    itself, pods, *others = of_kind(namespace, resource_of(workload), name)
    found = [itself, pods, events, *others]
    if _is_queued(workload):
        of_it = {"labelSelector": f"{KUEUE_UID}={workload['metadata']['uid']}"}
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), of_it, needed=False))
    return found


def of_namespace(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections that all runs of a namespace share. The first collection contains the workloads."""
    events = Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, needed=False)
    found = [*of_kind(namespace, resource_of(workload)), events]
    if _is_queued(workload):
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), needed=False))
    return found


def of_kind(namespace: str, workloads: Resource, run: str = "") -> list[Collection]:
    """Returns the collections of all runs with one kind of workload. No collection contains events.

    If `run` is given, the collections contain only the objects of the run with this name.
    """
    labels = {"labelSelector": f"{RUN}={run}" if run else RUN}
    itself = {"fieldSelector": f"metadata.name={run}"} if run else labels
    found = [Collection(workloads.path(namespace), itself), Collection(PODS.path(namespace), labels)]
    target = target_of(workloads)
    for kind, label in WORKLOAD_KINDS[target].followed if target is not None else ():
        by_label = {"labelSelector": f"{label}={run}" if run else label}
        found.append(Collection(resource_for(kind).path(namespace), by_label if label else itself))
    return found


def _is_queued(workload: Manifest) -> bool:
    return QUEUE_LABEL in (workload["metadata"].get("labels") or {})


def concerns(name: str) -> Callable[[Manifest], bool]:
    """Returns a function that selects the events of a run.

    The function returns True if the name of the object in the event is `name`, or begins with `name` and `-`.
    """

    def wanted(event: Manifest) -> bool:
        about = event.get("involvedObject")
        named = str(about.get("name", "")) if isinstance(about, Mapping) else ""
        return named == name or named.startswith(f"{name}-")

    return wanted
