"""From a run's objects and its agents' reports to its RunStatus: the one place where a run's state is decided.

Called whenever something changed, by the backend's follower and by Airflow's triggerer, and by whoever only looks.
Pure: the caller says what time it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepset.watch.cluster.failed import cancelled, failure_of, lost, restarts_of, stopping
from stepset.watch.cluster.keeper import LEAVING
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.observed import homes, observations
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.rows import at_the_end, rows_of
from stepset.watch.cluster.trouble import NODE_LOST, OVERDUE, QUEUED, STARTING, Trouble, trouble_of
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import Observation
from stepset.watch.state import Phase, RunStatus

_TOLD_WITHIN = 15.0
"""Seconds after which pods of a deleted run that nobody has told to go are taken for orphans."""
PROOF_PATIENCE = 5.0
"""Seconds that the ends of a run's pods may be seen later than its own, on a busy server."""


@dataclass(frozen=True, slots=True)
class _End:
    """That a run is over.

    Args:
        how: it came to its end, was deleted before it, or is gone without a word.
        phase: the final one.
        at: when, in seconds since the epoch.
    """

    how: Literal["ended", "deleted", "missing"]
    phase: Phase
    at: float | None


def status_of(objects: RunObjects, reports: Reports, now: float) -> RunStatus:
    """Where a run is.

    Args:
        objects: what is known of its objects.
        reports: what its agents said.
        now: seconds since the epoch.
    """
    workload = objects.workload
    if workload is None:
        return _nothing_known(objects, now)
    if workload.verdict is not None:
        return workload.verdict
    pods = objects.pods
    where = homes(workload, pods, reports)
    seen = observations(pods, objects, reports, where)
    rows = rows_of(pods, objects, reports, where, frozenset(o.pod for o in seen if o.stopped))
    status = RunStatus(
        name=workload.run,
        job=workload.job or workload.run,
        backend="kubernetes",
        attempt=objects.attempt,
        world_size=workload.world_size,
        created=workload.created,
        started=objects.started(workload.success),
        progress=reports.progress,
        notes=tuple(restarts_of(objects, reports)),
    )
    end = _end(objects, workload, pods, now)
    if end is None or (end.how == "deleted" and _leaving(objects, workload, pods, now)):
        trouble = trouble_of(objects, workload, pods, now)
        phase, reason = _phase(objects, workload, pods, trouble)
        return status.with_(
            phase=phase,
            reason=reason,
            ranks=tuple(rows),
            notes=(*status.notes, *(_present_notes(workload, pods, seen, reports) if end is None else (LEAVING,))),
            trouble=trouble.failure if trouble is not None and trouble.serious else None,
            waiting=trouble.waiting if trouble is not None else None,
        )
    failure = result = None
    if end.phase is Phase.SUCCEEDED:
        result = _result(workload, pods, reports)
    elif end.how == "ended":
        failure = failure_of(objects, workload, reports, seen, end.at)
    else:
        failure = cancelled(objects, workload) if end.how == "deleted" else lost(objects, workload)
    ranks = tuple(at_the_end(rows, failure))
    return status.with_(phase=end.phase, finished=end.at, ranks=ranks, failure=failure, result=result)


def _leaving(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> bool:
    """Whether a run that is being deleted has pods that are still given time to end, and may save what they have."""
    deleted = workload.deleted
    if objects.fate or deleted is None:
        return False
    dues = [pod.due if pod.due is not None else deleted + _TOLD_WITHIN for pod in pods if not pod.over]
    return any(now < due + OVERDUE for due in dues)


def _present_notes(
    workload: Workload, pods: Sequence[Pod], seen: Sequence[Observation], reports: Reports
) -> tuple[str, ...]:
    return (*stopping(workload, pods, seen), *_waiting(pods, reports))


def all_ended(objects: RunObjects) -> bool:
    """Whether every pod that is known has ended, so that nothing more is to be learnt from them.

    A run's end and the ends of its pods come on different ways.
    """
    return all(pod.over for pod in objects.pods)


def proven(objects: RunObjects) -> bool:
    """Whether a success that the run's controller tells is seen in its pods too, one of which says the result.

    A run's end and the ends of its pods come on different ways; who needs the whole truth waits for this, a little.
    """
    workload = objects.workload
    if workload is None or workload.ended != "Succeeded":
        return True
    return sum(pod.succeeded for pod in objects.pods if pod.group == workload.success) >= workload.needed


def _nothing_known(objects: RunObjects, now: float) -> RunStatus:
    status = RunStatus(objects.name, objects.name, "kubernetes", reason=STARTING)
    if not objects.fate:
        return status
    return status.with_(phase=Phase.LOST, reason="", finished=now, failure=lost(objects, None))


def _end(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> _End | None:
    """Whether the run is over; None where it goes on."""
    if workload.ended:
        return _End("ended", Phase.SUCCEEDED if workload.ended == "Succeeded" else Phase.FAILED, workload.at)
    if not workload.suspended:
        end = _end_of_statefulset(workload, pods) if workload.kind == "StatefulSet" else _success(workload, pods)
        if end is not None:
            return end
    if objects.fate == "deleted" or workload.deleted is not None:
        # The pods follow, as soon as the cluster comes to it.
        asked = min((pod.asked for pod in pods if pod.asked is not None), default=now)
        ends = [pod.end.at for pod in pods if pod.end is not None and pod.end.at is not None]
        return _End("deleted", Phase.FAILED, max([workload.deleted or asked, *ends]))
    if objects.fate == "missing":
        times = (at for pod in pods for at in (pod.asked, pod.end.at if pod.end else None, pod.started))
        return _End("missing", Phase.LOST, max((at for at in times if at is not None), default=now))
    return None


def _success(workload: Workload, pods: Sequence[Pod]) -> _End | None:
    """That every pod has succeeded, which is all that a controller waits for, some seconds longer.

    Whatever else there is to be said, of a pod that failed or has others after it, is the controller's to say.
    """
    ours = bool(workload.job)  # a Job of others' may have places that come after those that are taken
    if not ours or workload.restarting or workload.deleted is not None:
        return None
    if any(not pod.done or pod.gone or pod.asked is not None for pod in pods):
        return None
    if any(sum(pod.group == name for pod in pods) < count for name, count in workload.groups.items()):
        return None
    ends = [pod.end.at for pod in pods if pod.end is not None and pod.end.at is not None]
    return _End("ended", Phase.SUCCEEDED, max(ends)) if ends else None


def _end_of_statefulset(workload: Workload, pods: Sequence[Pod]) -> _End | None:
    """A StatefulSet never ends: its pods say by holding that they have (docs/targets.md)."""
    # What was told to go leaves no verdict: another pod comes in its place.
    ends = [pod.end for pod in pods if pod.end is not None and pod.asked is None and not pod.gone]
    failed = [end.at or 0.0 for end in ends if end.exit_code != 0]
    if failed:
        return _End("ended", Phase.FAILED, min(failed))
    if len(ends) >= workload.needed:
        return _End("ended", Phase.SUCCEEDED, max(end.at or 0.0 for end in ends))
    return None


def _result(workload: Workload, pods: Sequence[Pod], reports: Reports) -> Any:
    """Rank 0's result: its pod's termination message, else what its agent printed."""
    world = [pod for pod in pods if pod.group == workload.success]
    for pod in world:
        if pod.succeeded and pod.end is not None and pod.end.said.result:
            return pod.end.said.result[0]
    for pod in world:
        report = reports.of(pod.uid)
        if report is not None and report.result:
            return report.result[0]
    return None


def _waiting(pods: Sequence[Pod], reports: Reports) -> list[str]:
    """Whom the agents wait for."""
    for pod in pods:
        report = reports.of(pod.uid)
        if report is not None and report.missing and not pod.over:
            more = f" and {len(report.missing) - 3} more" if len(report.missing) > 3 else ""
            return [f"{pod.source} waits for {', '.join(report.missing[:3])}{more}"]
    return []


def _phase(objects: RunObjects, workload: Workload, pods: Sequence[Pod], trouble: Trouble | None) -> tuple[Phase, str]:
    """Phase and reason of a run that is not over."""
    if workload.suspended:
        return (Phase.PENDING, QUEUED) if workload.queue or objects.tickets else (Phase.SUSPENDED, "")
    reason = trouble.reason if trouble is not None else QUEUED if workload.enqueued and not pods else ""
    world = [pod for pod in pods if pod.group == workload.success]
    begun = [pod for pod in world if pod.running or pod.started is not None]
    if len(begun) >= workload.needed:
        # Those that are gone already among them: whether the run ends with them or starts again is not decided yet.
        return Phase.RUNNING, reason if reason == NODE_LOST else ""
    again = workload.restarting or objects.attempt > 0 or objects.replacements(workload.success) > 0
    again = again or any(pod.restarts for pod in world)
    return (Phase.RESTARTING if again else Phase.PENDING), reason or STARTING
