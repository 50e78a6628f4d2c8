"""Finds runs by name, among all kinds of workloads, and reads their current state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from stepset.backends.airflow_tasks import task_selectors
from stepset.backends.kubernetes.api.client import gather
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import FORBIDDEN, GONE, NOT_FOUND, RefusedError, Reply
from stepset.backends.kubernetes.api.resources import (
    EVENTS,
    QUEUE_WORKLOADS,
    WORKLOADS,
    Manifest,
    Resource,
    resource_for,
    resource_of,
)
from stepset.backends.kubernetes.hidden_runs import check_access, hidden_default_target, hidden_targets
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod, may_hold
from stepset.backends.kubernetes.logs.tail import read_reports
from stepset.backends.kubernetes.missing_pods import events_of_missing_pods
from stepset.backends.kubernetes.watch.pages import read_page
from stepset.backends.kubernetes.watch.preemptors import read_preemptors
from stepset.backends.kubernetes.watch.queue_position import QueuePositions
from stepset.backends.kubernetes.watch.selectors import KUEUE_UID, Collection, of_kind, of_run
from stepset.backends.kubernetes.watch.unqueued import UnqueuedRuns
from stepset.backends.run_names import being_deleted, name_taken, similar
from stepset.errors import HiddenRunError, InfrastructureError, RunNotFoundError
from stepset.run_status import RunStatus
from stepset.targets.metadata import JOB, OWNER_HASH, RUN
from stepset.targets.workload_kinds import WORKLOAD_KINDS
from stepset.unstructured import part, rows, text
from stepset.watch.cluster.failed import failed_job, failed_pod
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import is_run, name_of, run_of, uid_of
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.workload import read_workload, verdict_of
from stepset.watch.list_watch import Change, ListWatch
from stepset.watch.state.reports import Reports

_log = logging.getLogger(__name__)

RunKey = tuple[str, str]
"""A tuple of the namespace and the name of a run."""

_EVENTS = "500"
"""The maximum number of events that are read about one pod or Job."""
_NAMED = "100"
"""The maximum number of runs of each kind that are read to suggest a name."""
_ATTEMPTS = 5
"""The number of attempts to complete a list.

A list is incomplete if its pages expire, or if the list has no resourceVersion. The pauses between the attempts
increase.
"""


async def find(namespaced: NamespacedClient, name: str, targets: Sequence[str] = tuple(WORKLOADS)) -> Manifest:
    """Returns the workload of a run.

    Args:
        name: the name of a run, a job or an Airflow task. If no run has this name, this function returns the workload
            of the newest run of the job or task.
        targets: the kinds of workload to look up.

    Raises:
        RunNotFoundError: no run was found. If the account cannot read the runs of the default target, this is a
            HiddenRunError.
        InfrastructureError: the server cannot be reached, or the server denies access to all kinds.
    """
    kinds = [WORKLOADS[target] for target in targets]
    answers = await gather(*(namespaced.client.get(namespaced.one(kind, name)) for kind in kinds))
    for kind, reply in zip(kinds, answers, strict=True):
        if reply.accepted and is_run(reply.body):
            return _with_kind(reply.body, kind)
    for selector in (f"{JOB}={name}", *task_selectors(name)):
        if found := runs_in(kinds, await _lists(namespaced, kinds, selector)):
            return newest(found)
    await check_access(namespaced, kinds, answers)
    if (refused := await hidden_default_target(namespaced, kinds, answers)) is not None:
        raise HiddenRunError(str(refused))
    hidden = await hidden_targets(namespaced, kinds, answers)
    unread = f", or has a target whose runs this account may not read ({', '.join(hidden)})" if hidden else ""
    hint = similar(name, await _some_names(namespaced, kinds))
    raise RunNotFoundError(
        f"run {name!r} is not in namespace {namespaced.namespace}, or was deleted, for example after it failed in a"
        f" queue{unread}; {hint}list the runs of this namespace to see their names"
    )


async def check_free(namespaced: NamespacedClient, name: str) -> None:
    """Checks that no run of any kind has this name.

    If two runs had the same name and different kinds, the runs would share objects such as ConfigMaps. If the account
    cannot read a kind, this function does not check the runs of this kind.

    Raises:
        BadInputError: a run has this name.
        InfrastructureError: a run of this name is being deleted.
    """
    for reply in await gather(*(namespaced.client.get(namespaced.one(kind, name)) for kind in WORKLOADS.values())):
        if reply.accepted and is_run(reply.body):
            raise being_deleted(name) if reply.body["metadata"].get("deletionTimestamp") else name_taken(name)


async def _some_names(namespaced: NamespacedClient, kinds: Sequence[Resource]) -> list[str]:
    """Returns the names of at most `_NAMED` runs of each kind, and of their jobs."""
    found = runs_in(kinds, await _lists(namespaced, kinds, RUN, _NAMED))
    metadata = [part(each, "metadata") for each in found]
    return [name for each in metadata for name in (text(each, "name"), text(part(each, "labels"), JOB)) if name]


async def _lists(
    namespaced: NamespacedClient, kinds: Sequence[Resource], selector: str, limit: str = ""
) -> Sequence[Reply]:
    """Returns the replies to requests for the objects of several kinds. `limit` is the limit for each kind."""
    query = {"labelSelector": selector, **({"limit": limit} if limit else {})}
    return await gather(*(namespaced.client.get(namespaced.all(kind), query) for kind in kinds))


def runs_in(kinds: Sequence[Resource], replies: Sequence[Reply]) -> list[Manifest]:
    """Returns the workloads of runs in the lists of several kinds. Omits the lists that the server refused."""
    return [
        _with_kind(each, kind)
        for kind, reply in zip(kinds, replies, strict=True)
        for each in _items(reply)
        if is_run(each)
    ]


def newest(workloads: Sequence[Manifest]) -> Manifest:
    """Returns the workload that was created last. Compares the names of workloads that were created in the same
    second."""
    return max(workloads, key=_created)


def _created(workload: Manifest) -> tuple[str, str]:
    metadata = part(workload, "metadata")
    return text(metadata, "creationTimestamp"), text(metadata, "name")


async def find_owned(
    namespaced: NamespacedClient, owner: str, targets: Sequence[str] = tuple(WORKLOADS)
) -> list[Manifest]:
    """Returns the workloads of all runs with this owner. Raises the errors of `find`.

    `targets` are the kinds of workload to look up.
    """
    kinds = [WORKLOADS[target] for target in targets]
    replies = await _lists(namespaced, kinds, f"{OWNER_HASH}={owner}")
    await check_access(namespaced, kinds, replies)
    return runs_in(kinds, replies)


async def read_run(namespaced: NamespacedClient, workload: Manifest, now: float, *, logs: bool = False) -> RunStatus:
    """Returns the state of a run. `now` is the current time in seconds since the epoch.

    If `logs` is true, the progress, the times of last lines and a hang are read from the end of logs. A verdict already
    contains these. Therefore, if the run has a verdict, this function reads no log.
    """
    if (verdict := verdict_of(workload)) is not None:
        return verdict
    objects = await read_objects(namespaced, workload)
    await _read_cause_of_restart(namespaced, objects)
    await read_preemptors(namespaced, objects)
    await QueuePositions(namespaced).read([objects])
    await UnqueuedRuns(namespaced).read([objects])
    return status_of(objects, await read_reports(namespaced, objects) if logs else Reports(), now)


async def read_objects(namespaced: NamespacedClient, workload: Manifest) -> RunObjects:
    """Returns the objects of a run. If the run no longer exists, returns only `workload`, marked as deleted."""
    objects, _ = await _read_collections(namespaced, workload, of_run(namespaced.namespace, workload))
    if objects.workload is None:
        objects.see(Change("DELETED", workload, observed=False))
    return objects


async def _read_collections(
    namespaced: NamespacedClient, workload: Manifest, collections: Iterable[Collection]
) -> tuple[RunObjects, list[Change]]:
    namespaced, about = namespaced.of_kind(resource_of(workload)), workload["metadata"]
    objects = RunObjects(str(about["name"]), str(about["uid"]))
    changes = [each for found in await gather(*(listed(namespaced, each) for each in collections)) for each in found]
    for change in changes:
        _see(objects, change)
    return objects, changes


async def _read_cause_of_restart(namespaced: NamespacedClient, objects: RunObjects) -> None:
    """Adds to `objects` the events about the failed Job and the failed pod of the previous attempt.

    The Job and the pod no longer exist. `read_objects` reads only events of the type Warning. Other types are needed
    too. For example, the scheduler's event about a preempted pod has the type Normal.
    """
    if not objects.attempt or (job := failed_job(objects)) is None:
        return
    await _see_events(namespaced, objects, f"involvedObject.uid={job.about}")
    if pod := failed_pod(objects, job):
        await _see_events(namespaced, objects, f"involvedObject.kind=Pod,involvedObject.name={pod}")


async def _see_events(namespaced: NamespacedClient, objects: RunObjects, selector: str) -> None:
    """Lists events with a field selector, and adds the events to `objects`.

    If the account has no permission to list events, the function adds no events.
    """
    query = {"fieldSelector": selector, "limit": _EVENTS}
    reply = await namespaced.client.get(EVENTS.path(namespaced.namespace), query)
    for each in _items(reply):
        _see(objects, Change("ADDED", {**each, "kind": "Event"}))


async def pods_with_logs(
    namespaced: NamespacedClient, workload: Manifest, sources: frozenset[str] | None
) -> list[LogPod]:
    """Returns the pods of a run whose logs may contain lines of `sources`. Pods of earlier attempts come first.

    Raises InfrastructureError if the account cannot read the pods.
    """
    known = read_workload(workload)
    ranks = known.ranks if known else {}
    pods = [pod for pod in await pods_of(namespaced, workload) if pod.started and may_hold(pod, sources, ranks)]
    return sorted(pods, key=lambda pod: (pod.attempt, pod.group, pod.index))


async def pods_of(namespaced: NamespacedClient, workload: Manifest) -> list[LogPod]:
    """Returns the pods of a run. Raises InfrastructureError if the account cannot read the pods."""
    collections = of_kind(namespaced.namespace, resource_of(workload), str(workload["metadata"]["name"]))
    objects, changes = await _read_collections(namespaced, workload, collections)
    found = [each.object for each in changes if each.object["kind"] == "Pod" and objects.owns(uid_of(each.object))]
    return [log_pod(each) for each in found]


async def read_all(
    namespaced: NamespacedClient,
    now: float,
    targets: Sequence[str] = tuple(WORKLOADS),
    on_hidden: Callable[[InfrastructureError], None] = _log.warning,
) -> list[tuple[Manifest, RunStatus]]:
    """Returns the workload and the state of every run in the client's namespace.

    If the client's namespace is empty, this function reads the runs in all namespaces. The number of requests does not
    depend on the number of runs. `targets` are the kinds of workload to look up.

    If the account cannot list the runs of the default target, this function calls `on_hidden` with the error. Raises
    the errors of `find`, too.
    """
    kinds = [WORKLOADS[target] for target in targets]
    replies = await _lists(namespaced, kinds, RUN, "1")
    found: dict[RunKey, tuple[Manifest, RunObjects]] = {}
    for kind, reply in zip(kinds, replies, strict=True):
        if any(map(is_run, _items(reply))):
            found = {**await _runs_of_kind(namespaced, kind), **found}
    await check_access(namespaced, kinds, replies)
    hidden = await hidden_default_target(namespaced, kinds, replies, found=bool(found))
    if hidden is not None:
        on_hidden(hidden)
    verdicts = {key: verdict_of(workload) for key, (workload, _) in found.items()}
    active = [objects for key, (_, objects) in found.items() if verdicts[key] is None]
    for objects, event in await events_of_missing_pods(namespaced, active):
        _see(objects, event)
    return [
        (workload, verdicts[key] or status_of(objects, Reports(), now)) for key, (workload, objects) in found.items()
    ]


async def _runs_of_kind(namespaced: NamespacedClient, kind: Resource) -> dict[RunKey, tuple[Manifest, RunObjects]]:
    namespaced = namespaced.of_kind(kind)
    objects: dict[RunKey, RunObjects] = {}
    workloads: dict[RunKey, Manifest] = {}
    collections = of_kind(namespaced.namespace, kind)
    for index, changes in enumerate(await gather(*(listed(namespaced, each) for each in collections))):
        for change in changes:
            run, about = run_of(change.object), part(change.object, "metadata")
            key = text(about, "namespace"), run
            if index == 0:
                if not is_run(change.object) or text(about, "name") != run:
                    continue
                workloads[key] = change.object
                objects[key] = RunObjects(run, uid_of(change.object))
            if key in workloads:
                _see(objects[key], change)
    await _see_queue(namespaced, objects.values())
    return {key: (_with_kind(each, kind), objects[key]) for key, each in workloads.items()}


async def _see_queue(namespaced: NamespacedClient, runs: Iterable[RunObjects]) -> None:
    """Adds the Workloads of Kueue to the runs that wait in a queue. If no run waits, sends no request."""
    known = [(run, run.workload) for run in runs if run.workload is not None]
    waiting = {run.uid: run for run, workload in known if workload.suspended and workload.queue}
    if not waiting:
        return
    collection = Collection(QUEUE_WORKLOADS.path(namespaced.namespace), {"labelSelector": KUEUE_UID}, needed=False)
    for change in await listed(namespaced, collection):
        if run := waiting.get(text(part(change.object, "metadata", "labels"), KUEUE_UID)):
            _see(run, change)


async def listed(namespaced: NamespacedClient, collection: Collection) -> list[Change]:
    """Returns the objects of a collection.

    Returns an empty list in two cases:

    - The server does not serve the kind of the objects.
    - `collection.needed` is False, and the account cannot read the collection.

    Raises InfrastructureError if the server refuses the list for any other reason, or if all attempts to complete the
    list have failed.
    """
    list_watch, failures = ListWatch(collection.wanted), 0
    while True:
        try:
            changes = await read_page(namespaced.client, collection, list_watch)
            if list_watch.listed_once:
                return changes
            continue
        except RefusedError as error:
            if error.reply.status != GONE:  # 410 Gone: the server no longer has the version of the list
                return _without(namespaced, collection, error)
            list_watch.expired()
            failure: Exception = error
        except ValueError as error:
            failure = error
        failures += 1
        if failures >= _ATTEMPTS:
            raise InfrastructureError(f"{collection.path} cannot be listed: {failure}; try again") from failure
        await asyncio.sleep(list_watch.retries.failed())


def _without(namespaced: NamespacedClient, collection: Collection, refused: RefusedError) -> list[Change]:
    """Returns an empty list if the states of runs can be computed without the refused list.

    Otherwise raises InfrastructureError.
    """
    if refused.reply.status == NOT_FOUND or (refused.reply.status == FORBIDDEN and not collection.needed):
        return []
    if lacks_permission(refused.reply):
        raise namespaced.missing_permission(refused.reply, in_namespace=True)  # a run of the namespace is known
    raise InfrastructureError(
        f"{collection.path} cannot be listed: {refused}; contact the cluster's administrator"
    ) from refused


def _see(objects: RunObjects, change: Change) -> None:
    """Adds an object to a run. If the object cannot be read, logs a warning and ignores the object."""
    try:
        objects.see(change)
    except Exception as error:  # noqa: BLE001  # one unreadable object must not hide the other objects
        _log.warning("%s cannot be read and is ignored: %r", name_of(change.object), error)


def _with_kind(workload: Manifest, kind: Resource) -> Manifest:
    """Returns a copy of a list item, with the fields apiVersion and kind. The server omits these fields in lists."""
    api = next(each.api for each in WORKLOAD_KINDS.values() if resource_for(each.api) == kind)
    return {"apiVersion": api.api_version, "kind": api.kind, **workload}


def _items(reply: Reply) -> Sequence[Manifest]:
    return rows(reply.body, "items") if reply.accepted else ()
