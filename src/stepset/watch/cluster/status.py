"""From a run's objects and its agents' reports to its RunStatus: the one place where a run's state is decided.

Called whenever something changed, by the backend's follower and by Airflow's triggerer, and by whoever only looks.
Pure: the caller says what time it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepset.spec.quantity import format_duration
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.observed import DELETED, OVERTIME, Homes, homes, observations
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.rows import at_the_end, rows_of
from stepset.watch.cluster.trouble import NODE_LOST, QUEUED, STARTING, Trouble, last_made, trouble_of
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import ADVICE, Observation, diagnose, kind_of
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus

_EVENTS_BEFORE, _EVENTS_AFTER = 120.0, 2.0
"""Seconds around a failure in which events are told."""

_AGAIN_TOLD = 3
"""Pods whose single restarts are told."""

_FAILED_WITH = re.compile(r"for pod \S+?/(\S+) failed with exit code (\d+)")
_DISRUPTED = re.compile(r"[Pp]od \S+?/(\S+) has condition DisruptionTarget")


def status_of(objects: RunObjects, reports: Reports, now: float) -> RunStatus:
    """Where a run is.

    Args:
        objects: what is known of its objects.
        reports: what its agents said.
        now: seconds since the epoch.
    """
    workload = objects.workload
    if workload is None:
        return _nothing_known(objects)
    if (known := _verdict(workload)) is not None:
        return known
    pods = objects.pods
    where = homes(workload, pods, reports)
    ended, at = _end(objects, workload, pods, now)
    base = RunStatus(
        name=workload.run,
        job=workload.job or workload.run,
        backend="kubernetes",
        attempt=objects.attempt,
        world_size=workload.world_size,
        created=workload.created,
        started=objects.started(workload.success),
        progress=reports.progress,
    )
    notes = _restarts(objects, reports)
    seen = observations(pods, objects, reports, where)
    rows = rows_of(pods, objects, reports, where, frozenset(o.pod for o in seen if o.stopped))
    if ended is Phase.SUCCEEDED:
        result = _result(workload, pods, reports)
        ranks = tuple(at_the_end(rows, None))
        return base.with_(phase=ended, finished=at, ranks=ranks, result=result, notes=tuple(notes))
    if ended is not None:
        failure = _failure(objects, workload, reports, where, seen, ended, at)
        rows = at_the_end(rows, failure)
        return base.with_(phase=ended, finished=at, ranks=tuple(rows), failure=failure, notes=tuple(notes))
    trouble = trouble_of(objects, workload, pods, now)
    phase, reason = _phase(objects, workload, pods, trouble)
    return base.with_(
        phase=phase,
        reason=reason,
        ranks=tuple(rows),
        notes=(*notes, *_stopping(workload, pods, seen), *_waiting(pods, reports)),
        trouble=trouble.failure if trouble is not None and trouble.serious else None,
    )


def all_ended(objects: RunObjects) -> bool:
    """Whether every pod that is known has ended, so that nothing more is to be learnt from them.

    A run's end and the ends of its pods come on different ways; who needs the whole truth waits for this, a little.
    """
    return all(pod.over for pod in objects.pods)


def _nothing_known(objects: RunObjects) -> RunStatus:
    base = RunStatus(objects.name, objects.name, "kubernetes", reason=STARTING)
    if not objects.fate:
        return base
    failure = _of_kind(FailureKind.LOST, f"nobody knows of a run {objects.name}, or of how it ended.")
    return base.with_(phase=Phase.LOST, reason="", failure=failure)


def _verdict(workload: Workload) -> RunStatus | None:
    """What was written down by whoever saw the run end."""
    if workload.verdict is None:
        return None
    try:
        status = RunStatus.from_dict(dict(workload.verdict))
    except (AttributeError, KeyError, TypeError, ValueError):  # another version's, or somebody's own
        return None
    return status if status.phase.final else None


def _end(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> tuple[Phase | None, float | None]:
    """Whether and when the run ended."""
    if workload.ended:
        return (Phase.SUCCEEDED if workload.ended == "Succeeded" else Phase.FAILED), workload.at
    if workload.kind == "StatefulSet" and pods and not workload.suspended:
        found = _end_of_pods(workload, pods)
        if found[0] is not None:
            return found
    if objects.fate == "deleted" or workload.deleted is not None:
        # The pods follow, as soon as the cluster comes to it.
        asked = min((pod.asked for pod in pods if pod.asked is not None), default=now)
        return Phase.FAILED, workload.deleted or asked
    if objects.fate == "missing":
        return Phase.LOST, _last_seen(pods) or now
    return None, None


def _end_of_pods(workload: Workload, pods: Sequence[Pod]) -> tuple[Phase | None, float | None]:
    """A StatefulSet never ends: its pods say by holding that they have (docs/targets.md)."""
    # What was told to go leaves no verdict: another pod comes in its place.
    ends = [pod.end for pod in pods if pod.end is not None and pod.asked is None and not pod.gone]
    failed = [end.at or 0.0 for end in ends if end.exit_code != 0]
    if failed:
        return Phase.FAILED, min(failed)
    if len(ends) >= workload.needed:
        return Phase.SUCCEEDED, max(end.at or 0.0 for end in ends)
    return None, None


def _last_seen(pods: Sequence[Pod]) -> float | None:
    times = [at for pod in pods for at in (pod.asked, pod.end.at if pod.end else None, pod.started) if at is not None]
    return max(times, default=None)


def _failure(
    objects: RunObjects,
    workload: Workload,
    reports: Reports,
    where: Homes,
    seen: Sequence[Observation],
    ended: Phase,
    at: float | None,
) -> Failure:
    """Why the run failed."""
    if not workload.ended and (objects.fate or workload.deleted is not None) and workload.kind != "StatefulSet":
        return _gone(objects, workload, ended)
    every = [*_of_the_run(workload, objects, at), *seen]
    restarts = objects.attempt
    failure = diagnose(every, restarts=restarts)
    if failure is None:
        failure = _of_pods(objects.every_pod(), objects, reports, restarts, present=True)
    if failure is None and not workload.ended:
        return _gone(objects, workload, ended)
    if failure is None and objects.attempt:
        failure = _of_attempt(objects, reports, objects.attempt - 1, restarts)
    if failure is None:
        failure = _by_words(objects, workload, restarts)
    made = last_made(objects.pods)
    until = at if at is not None else objects.events.latest
    told = objects.events.told(until - _EVENTS_BEFORE, until + _EVENTS_AFTER, made)
    return replace(failure, events=tuple(line for line in told if not (failure.error and failure.error in line)))


def _of_the_run(workload: Workload, objects: RunObjects, at: float | None) -> list[Observation]:
    """A verdict on the run as a whole."""
    reasons = [workload.reason, *(job.reason for job in objects.jobs if job.ended == "Failed")]
    if OVERTIME not in [*reasons, *(pod.reason for pod in objects.pods)]:
        return []
    limit = f" of {format_duration(workload.deadline)}" if workload.deadline is not None else ""
    text = f"the run took longer than its deadline{limit}."
    return [Observation("", at or 0.0, kind=FailureKind.DEADLINE_EXCEEDED, error=text)]


def _gone(objects: RunObjects, workload: Workload, ended: Phase) -> Failure:
    if ended is Phase.LOST:
        text = f"the {workload.kind} of the run is gone, and nobody saw how the run ended."
        return _of_kind(FailureKind.LOST, text, objects.attempt)
    return _of_kind(FailureKind.CANCELLED, f"the run was cancelled: its {workload.kind} was deleted.", objects.attempt)


def _of_attempt(objects: RunObjects, reports: Reports, attempt: int, restarts: int) -> Failure | None:
    """Why an earlier attempt ended, by what is left of its pods."""
    pods = objects.earlier(attempt)
    if not pods:
        return None
    return _of_pods(pods, objects, reports, restarts, present=False)


def _of_pods(
    pods: Sequence[Pod], objects: RunObjects, reports: Reports, restarts: int, *, present: bool
) -> Failure | None:
    """What the ends of some pods come to; where none failed by itself, whoever was told to end first is the cause."""
    where = homes(objects.workload, pods, reports)
    for blame_told in (False, True):
        seen = observations(pods, objects, reports, where, present=present, blame_told=blame_told)
        failure = diagnose(seen, restarts=restarts)
        if failure is not None:
            return failure
    return None


def _by_words(objects: RunObjects, workload: Workload, restarts: int) -> Failure:
    """What controllers say, where no pod is left to be asked."""
    words = [job.message for job in objects.jobs if job.ended == "Failed" and job.message] + [workload.message]
    text = next((each for each in words if each), workload.reason or "nobody says why")
    pod, code = "", None
    # Pods that fail by themselves stay: these were taken away.
    kind = FailureKind.INFRASTRUCTURE
    if found := _FAILED_WITH.search(text):
        pod, code = found.group(1), int(found.group(2))
        kind = kind_of(Observation(pod, 0.0, pod=pod, exit_code=code))
    elif found := _DISRUPTED.search(text):
        pod = found.group(1)
    message = f"{workload.kind} {workload.name} failed, and its pods are gone: {text}"
    return Failure(kind=kind, message=message, advice=ADVICE[kind], pod=pod, exit_code=code, restarts=restarts)


def _of_kind(kind: FailureKind, text: str, restarts: int = 0) -> Failure:
    return Failure(kind=kind, message=text, advice=ADVICE[kind], restarts=restarts)


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


def _restarts(objects: RunObjects, reports: Reports) -> list[str]:
    """Why each attempt before this one ended, as far as that is known."""
    notes = []
    for attempt in range(objects.attempt):
        failure = _of_attempt(objects, reports, attempt, attempt)
        if failure is not None:
            notes.append(f"restart {attempt + 1}: {failure.message}")
    again = objects.predecessors() + [_as_it_was(pod) for pod in objects.pods if pod.before is not None and not pod.end]
    failures = [_of_pods([pod], objects, reports, 0, present=False) for pod in again[-_AGAIN_TOLD:]]
    return notes + [f"started again: {failure.message}" for failure in failures if failure is not None]


def _as_it_was(pod: Pod) -> Pod:
    """A pod whose command was started again, as it was before."""
    return replace(pod, end=pod.before, running=False, asked=None, disruption=None, reason="")


def _stopping(workload: Workload, pods: Sequence[Pod], seen: Sequence[Observation]) -> list[str]:
    """What failed already, while the rest of the gang is still being stopped: pods have a minute to end."""
    if workload.elastic or workload.kind == "StatefulSet" or all(pod.over for pod in pods):
        return []
    # That a pod is deleted may be known before it is known why.
    failure = diagnose(o for o in seen if o.how != DELETED)
    return [f"{failure.message.rstrip('.')}; the other pods are being stopped"] if failure is not None else []


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
