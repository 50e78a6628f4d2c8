"""Checks whether the LocalQueue, the WorkloadPriorityClass and the PriorityClass of a run exist.

If the queue or the class of a workload does not exist, the API server accepts the workload, but Kueue never admits the
workload. An account can submit a run without the permission to read queues and classes. Therefore a missing permission
is not reported as a problem. A submission checks only the queue and the WorkloadPriorityClass, with one request each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.lookup import Lookup, kueue_resource, look_up
from stepset.backends.kubernetes.api.permissions import Grant, account_name
from stepset.backends.kubernetes.api.resources import KUEUE_VERSIONS, PRIORITY_CLASSES, Manifest, Resource
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.namespace_selector import excludes
from stepset.targets.metadata import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from stepset.targets.pod_templates import priority_classes
from stepset.unstructured import conditions, part, text

_CLASSES = "workloadpriorityclasses"


def inactive(queue: Manifest) -> str:
    """Returns the reason and the message of an inactive LocalQueue or ClusterQueue. Returns "" for an active queue."""
    active = conditions(part(queue, "status")).get("Active", {})
    return f"{text(active, 'reason')}: {text(active, 'message')}" if active.get("status") == "False" else ""


@dataclass(frozen=True)
class QueueCheck:
    """The result of `check_queue`.

    Args:
        problems: the reasons why Kueue cannot admit the run.
        notes: a line if the queue is inactive, and a line for each check that was not possible.
        cluster_queue: the ClusterQueue of the queue. None if the ClusterQueue could not be read, or if the run has no
            queue.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cluster_queue: Manifest | None = None


async def check_queue(client: Client, namespace: str, labels: Mapping[str, str], grant: Grant) -> QueueCheck:
    """Checks the queue and the priority class in the labels of a workload.

    `grant` contains the permissions that the account needs for the run. The messages contain the command that grants
    these permissions.

    Raises InfrastructureError if the server cannot be reached.
    """
    queue, priority = labels.get(QUEUE_LABEL), labels.get(QUEUE_PRIORITY_LABEL)
    if queue is None and priority is None:
        return QueueCheck()
    queues = await kueue_resource(client, "localqueues")
    if queues is None:
        absent = Resource("kueue.x-k8s.io", KUEUE_VERSIONS[0], "localqueues").absent(grant.interface)
        return QueueCheck((absent,) if queue is not None else ())
    problems, notes, unread = list[str](), list[str](), list[str]()
    cluster_queue: Manifest | None = None
    if queue is not None:
        local = await look_up(client, queues, namespace, queue)
        if local.missing:
            problems.append(_absent(queue, namespace, local))
        elif not local.readable:
            unread.append(f"LocalQueue {queue}")
        else:
            if why := inactive(local.found or {}):
                notes.append(f"LocalQueue {queue} is not active, so no run starts now: {why}")
            name, cluster = await _cluster_queue(client, queues, local)
            cluster_queue = cluster.found
            if not cluster.readable:
                command = replace(grant, quotas=True).command(namespace, await account_name(client))
                notes.append(
                    f"the run was not compared with the quota of queue {queue}, because you may not read ClusterQueue"
                    f" {name}; have an administrator run: {command}"
                )
            if cluster_queue is not None and (why := await excludes(client, cluster_queue, namespace)):
                problems.append(f"scheduling.queue_name: {why}; use another queue, or have the selector changed")
    if priority is not None:
        known = await look_up(client, replace(queues, plural=_CLASSES), "", priority)
        if known.missing:
            problems.append(_absent_class(priority, known))
        elif not known.readable:
            unread.append(f"WorkloadPriorityClass {priority}")
            grant = replace(grant, priorities=True)
    if unread:
        command = grant.command(namespace, await account_name(client))
        what = f"not checked, because you may not read it: {', '.join(unread)}"
        notes.append(f"{what}; have an administrator run: {command}")
    return QueueCheck(tuple(problems), tuple(notes), cluster_queue)


async def _cluster_queue(client: Client, queues: Resource, local: Lookup) -> tuple[str, Lookup]:
    """Returns the name of a LocalQueue's ClusterQueue, and the result of the request for this ClusterQueue."""
    name = text(part(local.found or {}, "spec"), "clusterQueue")
    return name, await look_up(client, replace(queues, plural="clusterqueues"), "", name)


async def missing_queue_objects(client: Client, namespace: str, labels: Mapping[str, str]) -> list[str]:
    """Returns an error message if the LocalQueue or the WorkloadPriorityClass in a workload's labels does not exist.

    An object is not checked if the account has no permission to read it, or if the server does not serve the newest
    version of Kueue's API. If the objects exist, this function sends one request for each object.
    """
    found, kueue = list[str](), Resource("kueue.x-k8s.io", KUEUE_VERSIONS[0], "localqueues")
    if (queue := labels.get(QUEUE_LABEL)) is not None:
        local = await look_up(client, kueue, namespace, queue)
        found += [_absent(queue, namespace, local)] if local.missing else []
    if (priority := labels.get(QUEUE_PRIORITY_LABEL)) is not None:
        known = await look_up(client, replace(kueue, plural=_CLASSES), "", priority)
        found += [_absent_class(priority, known)] if known.missing else []
    return found


def _absent(queue: str, namespace: str, local: Lookup) -> str:
    return f"scheduling.queue_name: LocalQueue {queue!r} does not exist in namespace {namespace}; {local.remedy}"


def _absent_class(priority: str, known: Lookup) -> str:
    return f"labels.{QUEUE_PRIORITY_LABEL}: WorkloadPriorityClass {priority!r} does not exist; {known.remedy}"


async def missing_priority_classes(client: Client, pods: Sequence[Manifest], mapper: FieldMapper) -> list[str]:
    """Returns an error message for each missing PriorityClass that the pods name.

    Classes that the account cannot read are not checked.
    """
    lines = []
    for name in dict.fromkeys(name for pod in pods for name in priority_classes(pod)):
        known = await look_up(client, PRIORITY_CLASSES, "", name)
        if known.missing:
            field = mapper.scheduling("priorityClassName")
            lines.append(f"{field}: PriorityClass {name!r} does not exist; {known.remedy}")
    return lines


@dataclass(frozen=True)
class QueueObjects:
    """A LocalQueue and its ClusterQueue.

    Args:
        version: the version of Kueue's API.
        local: the LocalQueue.
        cluster: the ClusterQueue. None if the LocalQueue could not be read or has no ClusterQueue.
        excludes: why the ClusterQueue admits no run of the namespace; "" if it does, or if this is unknown.
    """

    version: str
    local: Lookup
    cluster: Lookup | None = None
    excludes: str = ""


async def read_queue(client: Client, namespace: str, name: str) -> QueueObjects | None:
    """Reads a LocalQueue and its ClusterQueue. Returns None if Kueue is not installed.

    Raises InfrastructureError if the server cannot be reached.
    """
    queues = await kueue_resource(client, "localqueues")
    if queues is None:
        return None
    local = await look_up(client, queues, namespace, name)
    if not text(part(local.found or {}, "spec"), "clusterQueue"):
        return QueueObjects(queues.version, local)
    _, cluster = await _cluster_queue(client, queues, local)
    why = "" if cluster.found is None else await excludes(client, cluster.found, namespace)
    return QueueObjects(queues.version, local, cluster, why)
