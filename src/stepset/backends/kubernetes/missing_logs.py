"""Finds those pods of a run that have no log.

A pod was deleted together with its log, for example when a node was drained, or the container of a failed pod has never
started, for example because an init container failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stepset.backends.kubernetes.api.resources import EVENTS, Manifest
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.kubernetes.find import pods_of
from stepset.plan.model import LAUNCHER, NODE
from stepset.run_status import RunStatus
from stepset.targets.names import CONTAINER
from stepset.unstructured import part, rows, text
from stepset.watch.cluster.workload import read_workload
from stepset.watch.present.sentences import counted

_LISTED = 3
"""The maximum number of pods whose names are in the sentence."""
_EVENTS = "500"


async def missing_logs(runs: ClusterRuns, name: str, sources: frozenset[str] | None) -> str:
    """Returns a sentence about those logs of a run that do not exist. Returns "" if all logs exist.

    If a pod exists whose container has never started, the sentence is not about deleted logs.

    The deleted pods are known from the run's verdict, and from events, which a cluster keeps for an hour by default. If
    `sources` is given, the function considers only the pods that the verdict assigns to these sources.

    Raises the errors of `ClusterRuns.status`.
    """
    workload = await runs.find(name)
    status = await runs.read(workload)
    pods = {pod.name: pod for pod in await pods_of(runs.namespaced, workload)}
    ranks = [row for row in status.ranks if row.state != "Pending"]
    expected = {row.pod for row in ranks if sources is None or row.source in sources}
    if sources is None:
        expected |= await _started(runs, workload)
    pod_name = _names(workload)
    if never := sorted(name for name in expected & set(pods) if not pods[name].started):
        why = f"its container {pods[never[0]].container} never started"
        return _sentence(status, never, why, "their containers never started")
    deleted = sorted(pod for pod in expected - set(pods) if pod_name.fullmatch(pod))
    return _sentence(status, deleted, "the pod was deleted", "the pods were deleted") if deleted else ""


def _names(workload: Manifest) -> re.Pattern[str]:
    """Returns a pattern that matches the name of each pod whose log contains lines of a run.

    mpirun prints the lines of all ranks in the pod of the launcher. JobSet deletes the other pods when mpirun exits.
    """
    known = read_workload(workload)
    groups = set(known.groups) if known is not None else set[str]()
    groups -= {NODE} if LAUNCHER in groups else set()
    group = "|".join(map(re.escape, sorted(groups)))
    return re.compile(rf"{re.escape(workload['metadata']['name'])}-(?:(?:{group})-)?\d+(?:-\d+)?(?:-[a-z0-9]{{5}})?")


async def _started(runs: ClusterRuns, workload: Manifest) -> set[str]:
    """Returns the names of the pods whose main container started after the run was created, according to events.

    Events from before the creation are ignored, because an earlier run may have had the same name.
    """
    query = {"fieldSelector": "involvedObject.kind=Pod,reason=Started", "limit": _EVENTS}
    reply = await runs.namespaced.client.get(EVENTS.path(runs.namespaced.namespace), query)
    created, field = workload["metadata"]["creationTimestamp"], f"spec.containers{{{CONTAINER}}}"
    return {
        text(part(event, "involvedObject"), "name")
        for event in rows(reply.body, "items")
        if text(part(event, "involvedObject"), "fieldPath") == field and text(event, "lastTimestamp") >= created
    }


def _sentence(status: RunStatus, pods: list[str], why_one: str, why_several: str) -> str:
    if len(pods) > 1:
        more = f" and {len(pods) - _LISTED} more" if len(pods) > _LISTED else ""
        listed = f"{', '.join(pods[:_LISTED])}{more}"
        why = next(filter(None, (_reason(status, pod) for pod in pods)), "")
        return f"the logs of {counted(len(pods), 'pod')} cannot be read, because {why_several}: {listed}{why}"
    return f"the log of pod {pods[0]} cannot be read, because {why_one}{_reason(status, pods[0])}"


def _reason(status: RunStatus, pod: str) -> str:
    """Returns what the status states about a pod, as the end of a sentence."""
    known: Iterable[str] = (*((status.failure.message,) if status.failure is not None else ()), *status.notes)
    return next((f"; {each.rstrip('.')}" for each in known if pod in each), "")
