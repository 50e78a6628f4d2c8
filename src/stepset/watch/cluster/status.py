"""Computes the `RunStatus` of a run from its objects and its agents' reports. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.failed import lost, restarts_of, stopping
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.phase import RULES, State
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.rank_rows import succeeded_rows
from stepset.watch.cluster.trouble import STARTING
from stepset.watch.cluster.workload import Workload, described
from stepset.watch.present.run_end import TERMINATING
from stepset.watch.state.reports import Reports
from stepset.watch.state.rules import Decision, decide, ended

POD_ENDS_TIMEOUT = 5.0
"""The number of seconds to wait for the exits of pods after a run has finished. A busy server reports exits late."""


def status_of(objects: RunObjects, reports: Reports, now: float) -> RunStatus:
    """Returns the status of a run. `now` is in seconds since the epoch."""
    workload = objects.workload
    if workload is None:
        return _status_without_workload(objects, now)
    state = State(objects, workload, objects.pods, reports, now)
    decision = decide(RULES, state)
    if decision.verdict is not None:
        return decision.verdict
    status = RunStatus(
        name=workload.run,
        job=workload.job or workload.run,
        backend="kubernetes",
        phase=decision.phase,
        reason=decision.reason,
        attempt=objects.attempt,
        world_size=workload.world_size,
        created=workload.created,
        started=objects.history.started.get(workload.success),
        progress=reports.progress,
        notes=(
            *_unreadable(workload),
            *reports.notes_of(workload.created),
            *restarts_of(objects, reports),
            *_beside(state.pods),
        ),
    )
    status = described(status, workload)
    status = _final(status, state, decision) if decision.phase.final else _current(status, state)
    return reports.with_hang_and_slow(status, state.uids)


def _current(status: RunStatus, state: State) -> RunStatus:
    """Returns the status of a run that has not finished."""
    pods, trouble = state.pods, state.trouble
    stopped = [*stopping(state.workload, pods, state.seen), *_waiting(pods, state.reports)]
    return status.with_(
        ranks=tuple(state.rows),
        notes=(*status.notes, *([TERMINATING] if state.deleted else stopped)),
        trouble=trouble.failure if trouble is not None and trouble.serious else None,
        waiting=trouble.waiting if trouble is not None else None,
    )


def _final(status: RunStatus, state: State, decision: Decision) -> RunStatus:
    """Returns the status of a run that has finished."""
    workload, pods, reports = state.workload, state.pods, state.reports
    rows = state.rows if decision.failure is not None else succeeded_rows(state.rows)
    hang = reports.stalled.before_stop(state.rows, state.uids, decision.failure)
    alone = reports.alone_note((pod.uid for pod in pods if pod.succeeded), workload.world_size)
    return ended(status, decision, rows, hang, _result(workload, pods, reports), alone).with_ttl(workload.ttl)


def _beside(pods: Sequence[Pod]) -> list[str]:
    """Returns a note for each failure of a container beside the ranks. The note names the first pod."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.place, pod.name)):
        for failure in pod.beside:
            found.setdefault(failure, []).append(pod)
    return [f"pod {pods[0].name}: {failure}" for failure, pods in found.items()]


def all_ended(objects: RunObjects) -> bool:
    """Returns whether all known pods have exited. A run can finish before all its pods have exited."""
    return all(pod.over for pod in objects.pods)


def success_confirmed(objects: RunObjects) -> bool:
    """Returns whether the pods confirm the success that the controller reports.

    Returns True if the controller reports no success. Until the pods confirm the success, the result of the run may be
    missing, because the status of one of the pods contains the result.
    """
    workload = objects.workload
    if workload is None or workload.ended != "Succeeded":
        return True
    succeeded = [pod for pod in objects.pods if pod.group == workload.success and pod.succeeded]
    return any(pod.index == 0 for pod in succeeded) if workload.first else len(succeeded) >= workload.needed


def _status_without_workload(objects: RunObjects, now: float) -> RunStatus:
    status = RunStatus(objects.name, objects.name, "kubernetes")
    if not objects.absence:
        return status.with_(reason=STARTING)
    return status.with_(phase=Phase.LOST, finished=now, failure=lost(objects, None))


def _result(workload: Workload, pods: Sequence[Pod], reports: Reports) -> Any:
    """Returns the result of rank 0 from the termination message of its pod.

    If the message contains no result, returns the result from the output of the agent.
    """
    world = [pod for pod in pods if pod.group == workload.success]
    for pod in world:
        if pod.succeeded and pod.end is not None and pod.end.termination_message.result:
            return pod.end.termination_message.result[0]
    return next(iter(reports.result(pod.uid for pod in world)), None)


def _unreadable(workload: Workload) -> list[str]:
    """Returns notes about annotations of the workload that cannot be read."""
    return [
        f"annotation {name} of {workload.kind} {workload.name} is invalid; it is ignored"
        for name in workload.unreadable
    ]


def _waiting(pods: Sequence[Pod], reports: Reports) -> list[str]:
    """Returns a note about the peers that an agent waits for."""
    for pod in pods:
        report = reports.of(pod.uid)
        if report is not None and report.missing and not pod.over:
            more = f" and {len(report.missing) - 3} more" if len(report.missing) > 3 else ""
            return [f"{pod.source} waits for {', '.join(report.missing[:3])}{more}"]
    return []
