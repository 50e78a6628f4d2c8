"""Computes the `RunStatus` of a run from its objects and its agents' reports. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepset.run_status import Phase, RunStatus
from stepset.watch.bounded_json import without_nan
from stepset.watch.cluster.failed import cancelled, failure_of, lost, restarts_of, stopping
from stepset.watch.cluster.follow_policy import PODS_DELETED_WITHIN, TERMINATING
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.rank_rows import final_rows, rows_of
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.terminations import observations, rank_placement
from stepset.watch.cluster.trouble import NODE_LOST, OVERDUE, QUEUED, STARTING, Trouble, trouble_of
from stepset.watch.cluster.workload import Workload, described
from stepset.watch.hangs.joins import with_slow
from stepset.watch.hangs.stalled import with_hang, with_known_hang
from stepset.watch.present.sentences import NOT_FINITE, alone_sentence, resume_sentence

POD_ENDS_TIMEOUT = 5.0
"""The number of seconds to wait for the exits of pods after a run has finished. A busy server reports exits late."""


@dataclass(frozen=True, slots=True)
class _End:
    """How a run finished."""

    how: Literal["ended", "deleted", "missing"]  # missing: the workload no longer exists
    phase: Phase  # the final phase
    at: float | None  # seconds since the epoch


def status_of(objects: RunObjects, reports: Reports, now: float) -> RunStatus:
    """Returns the status of a run. `now` is in seconds since the epoch."""
    workload = objects.workload
    if workload is None:
        return _status_without_workload(objects, now)
    if workload.verdict is not None:
        return workload.verdict
    pods = objects.pods
    placement = rank_placement(workload, pods, reports)
    seen = observations(pods, objects, reports, placement)
    rows = rows_of(pods, objects, reports, placement, frozenset(o.pod for o in seen if o.stopped))
    status = RunStatus(
        name=workload.run,
        job=workload.job or workload.run,
        backend="kubernetes",
        attempt=objects.attempt,
        world_size=workload.world_size,
        created=workload.created,
        started=objects.history.started.get(workload.success),
        progress=reports.progress,
        notes=(
            *_unreadable(workload),
            *reports.notes,
            *_resuming(workload, reports),
            *restarts_of(objects, reports),
            *_beside(pods),
        ),
    )
    status = described(status, workload)
    # The uid of a pod differs between attempts. Therefore the evidence of an earlier attempt never counts.
    uids = {pod.name: pod.uid for pod in pods}
    end = _end(objects, workload, pods, now)
    if end is None or (end.how == "deleted" and _terminating(objects, workload, pods, now)):
        trouble = trouble_of(objects, workload, pods, now)
        phase, reason = _phase(objects, workload, pods, trouble)
        notes = (TERMINATING,) if end is not None else (*stopping(workload, pods, seen), *_waiting(pods, reports))
        current = status.with_(
            phase=phase,
            reason=reason,
            ranks=tuple(rows),
            notes=(*status.notes, *notes),
            trouble=trouble.failure if trouble is not None and trouble.serious else None,
            waiting=trouble.waiting if trouble is not None else None,
        )
        return with_slow(with_hang(current, reports.stalled.of(current.ranks, uids)), reports.joins, uids)
    stored = workload.unconfirmed
    if end.how == "ended" and stored is not None and stored.phase is end.phase:
        # The result of the Jobs is the same as the result in the stored verdict, but the JobSet does not show this
        # result yet. All processes that read the run return the stored verdict, so that they report the same result.
        return stored
    failure = result = None
    if end.phase is Phase.SUCCEEDED:
        reported = _result(workload, pods, reports)
        result = without_nan(reported)
        if result is not reported:
            status = status.with_(notes=(*status.notes, NOT_FINITE))
        ranks_alone = reports.alone(pod.uid for pod in pods if pod.succeeded)
        if ranks_alone > 1 and ranks_alone == workload.world_size:
            status = status.with_(notes=(*status.notes, alone_sentence(ranks_alone)))
    elif end.how == "ended":
        failure = failure_of(objects, workload, reports, seen, end.at)
    else:
        failure = cancelled(objects, workload) if end.how == "deleted" else lost(objects, workload)
    hang = reports.stalled.before_stop(rows, {pod.name: pod.uid for pod in pods}, failure)
    if failure is not None:
        failure = with_known_hang(failure, hang)
    ranks = tuple(final_rows(rows, failure))
    final = status.with_(phase=end.phase, finished=end.at, ranks=ranks, failure=failure, result=result, hang=hang)
    return with_slow(final, reports.joins, uids).with_ttl(workload.ttl)


def _beside(pods: Sequence[Pod]) -> list[str]:
    """Returns a note for each failure of a container beside the ranks. The note names the first pod."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.place, pod.name)):
        for failure in pod.beside:
            found.setdefault(failure, []).append(pod)
    return [f"pod {pods[0].name}: {failure}" for failure, pods in found.items()]


def _terminating(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> bool:
    """Returns whether a run that is being deleted has pods within their grace period. These pods may save state."""
    deleted = workload.deletion_requested
    if objects.absence or deleted is None:
        return False
    dues = [pod.due if pod.due is not None else deleted + PODS_DELETED_WITHIN for pod in pods if not pod.over]
    return any(now < due + OVERDUE for due in dues)


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


def _end(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> _End | None:
    """Returns how the run finished, or None while it continues."""
    if workload.ended:
        return _End("ended", Phase.SUCCEEDED if workload.ended == "Succeeded" else Phase.FAILED, workload.at)
    if not workload.suspended:
        end = _end_of_pods(workload, pods) if workload.pods_decide else _success(objects, workload, pods)
        if end is not None:
            return end
    if objects.absence == "deleted" or workload.deletion_requested is not None:
        # The deletion time of the workload may be unknown. Then the earliest deletion time of its pods is used.
        requested = min((pod.deletion_requested for pod in pods if pod.deletion_requested is not None), default=now)
        ends = [pod.end.at for pod in pods if pod.end is not None and pod.end.at is not None]
        return _End("deleted", Phase.FAILED, max([workload.deletion_requested or requested, *ends]))
    if objects.absence == "missing":
        times = (at for pod in pods for at in (pod.deletion_requested, pod.end.at if pod.end else None, pod.started))
        return _End("missing", Phase.LOST, max((at for at in times if at is not None), default=now))
    return None


def _success(objects: RunObjects, workload: Workload, pods: Sequence[Pod]) -> _End | None:
    """Returns the success of a run if all its pods have succeeded.

    The controller reports the success some seconds after the last pod has succeeded. The function returns a success
    only if the status of the Jobs already includes all successful pods. The pods alone prove nothing, because other
    users can create pods. If a pod failed or was replaced, only the controller can decide, and the function returns
    None.
    """
    ours = bool(workload.job)  # the Job of another tool may add pods later
    if not ours or workload.restarting or workload.deletion_requested is not None:
        return None
    if any(not pod.done or pod.deleted or pod.deletion_requested is not None for pod in pods):
        return None
    if any(sum(pod.group == name for pod in pods) < count for name, count in workload.groups.items()):
        return None
    recorded = sum(job.succeeded for job in (objects.jobs if workload.replicas else [workload]))
    if recorded < sum(workload.groups.values()):
        return None
    ends = [pod.end.at for pod in pods if pod.end is not None and pod.end.at is not None]
    return _End("ended", Phase.SUCCEEDED, max(ends)) if ends else None


def _end_of_pods(workload: Workload, pods: Sequence[Pod]) -> _End | None:
    """Returns how a run finished whose pods decide, or None if it has not finished.

    A StatefulSet itself never completes. Its pods contain the verdicts (docs/targets.md).
    """
    # A pod that is being deleted will be replaced. Therefore it has no verdict.
    ends = [pod.end for pod in pods if pod.end is not None and pod.deletion_requested is None and not pod.deleted]
    failed = [end.at or 0.0 for end in ends if end.exit_code != 0]
    if len(ends) > workload.counted:
        return None  # the controller does not count all of these pods
    if failed:
        return _End("ended", Phase.FAILED, min(failed))
    if len(ends) >= workload.needed:
        return _End("ended", Phase.SUCCEEDED, max(end.at or 0.0 for end in ends))
    return None


def _result(workload: Workload, pods: Sequence[Pod], reports: Reports) -> Any:
    """Returns the result of rank 0 from the termination message of its pod.

    If the message contains no result, returns the result from the output of the agent.
    """
    world = [pod for pod in pods if pod.group == workload.success]
    for pod in world:
        if pod.succeeded and pod.end is not None and pod.end.termination_message.result:
            return pod.end.termination_message.result[0]
    for pod in world:
        report = reports.of(pod.uid)
        if report is not None and report.result:
            return report.result[0]
    return None


def _unreadable(workload: Workload) -> list[str]:
    """Returns notes about annotations of the workload that cannot be read."""
    return [
        f"annotation {name} of {workload.kind} {workload.name} is invalid; it is ignored"
        for name in workload.unreadable
    ]


def _resuming(workload: Workload, reports: Reports) -> list[str]:
    """Returns a note about the checkpoint from which the run continues."""
    return [resume_sentence(*reports.checkpoint, workload.created)] if reports.checkpoint else []


def _waiting(pods: Sequence[Pod], reports: Reports) -> list[str]:
    """Returns a note about the peers that an agent waits for."""
    for pod in pods:
        report = reports.of(pod.uid)
        if report is not None and report.missing and not pod.over:
            more = f" and {len(report.missing) - 3} more" if len(report.missing) > 3 else ""
            return [f"{pod.source} waits for {', '.join(report.missing[:3])}{more}"]
    return []


def _phase(objects: RunObjects, workload: Workload, pods: Sequence[Pod], trouble: Trouble | None) -> tuple[Phase, str]:
    """Returns the phase and the reason of a run that has not finished."""
    if workload.suspended:
        return (Phase.PENDING, QUEUED) if workload.queue or objects.kueue_workloads else (Phase.SUSPENDED, "")
    reason = trouble.reason if trouble is not None else QUEUED if workload.enqueued and not pods else ""
    world = [pod for pod in pods if pod.group == workload.success]
    started = [pod for pod in world if pod.running or pod.started is not None]
    if len(started) >= workload.needed:
        # Deleted pods are counted as started, because it is not decided yet whether the run finishes or restarts.
        return Phase.RUNNING, reason if reason == NODE_LOST else ""
    restarting = workload.restarting or objects.attempt > 0 or objects.history.replacements(workload.success) > 0
    restarting = restarting or any(pod.restarts for pod in world)
    return (Phase.RESTARTING if restarting else Phase.PENDING), reason or STARTING
