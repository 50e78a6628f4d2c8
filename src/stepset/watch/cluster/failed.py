"""Determines why a run failed, and why it was restarted.

The cause is read from the pods. If the failed pods no longer exist, the cause is read from the messages of controllers
and from events. For some failures, these messages and events state the kind of the failure
(targets/kinds/failure_policy.py). For all other failures, the cause is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from stepset.run_status import Failure, FailureKind
from stepset.targets.metadata import GROUP
from stepset.targets.workload_kinds import COMPLETION_INDEX
from stepset.unstructured import to_number
from stepset.watch.advice import ADVICE, GONE_ADVICE, GONE_USER_ERROR_ADVICE, make_failure
from stepset.watch.cluster.events import Event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod, read_pod
from stepset.watch.cluster.rank_rows import rows_of
from stepset.watch.cluster.terminations import AGENT_CODES, DEADLINE_EXCEEDED, DELETED, observations, rank_placement
from stepset.watch.cluster.trouble import last_created
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import Observation, diagnose, kind_of
from stepset.watch.hangs.stalled import with_known_hang
from stepset.watch.present import run_end
from stepset.watch.present.process_end import exceeded_sentence
from stepset.watch.present.sentences import restart_sentence
from stepset.watch.state.reports import Reports

_EVENTS_BEFORE, _EVENTS_AFTER = 120.0, 2.0
"""An event is shown only if it occurred at most _EVENTS_BEFORE seconds before, or at most _EVENTS_AFTER seconds after,
the failure."""
_RESTARTS_SHOWN = 3
"""The maximum number of restarts of single pods that are reported."""

_FAILED_WITH = re.compile(r"for pod \S{1,253}?/(\S{1,253}) failed with exit code (\d{1,9})")
_DISRUPTED = re.compile(r"[Pp]od \S{1,253}?/(\S{1,253}) has condition DisruptionTarget")

# Events about the Jobs and pods of earlier attempts (kubernetes v1.36 pkg/controller/job, pkg/scheduler, pkg/kubelet).
_JOB_FAILED = ("PodFailurePolicy", "BackoffLimitExceeded")
_FIRST_FAILED = re.compile(r"\(first failed job: (\S{1,253})\)")  # jobset v0.12.0 pkg/controllers/failure_policy.go
_ASSIGNED = re.compile(r"Successfully assigned \S{1,253} to (\S{1,253})")
_DISRUPTIONS = {
    "Preempted": "PreemptionByScheduler",
    "Evicted": "TerminationByKubelet",
    "TaintManagerEviction": "DeletionByTaintManager",
    "NodeNotReady": "DeletionByTaintManager",
}
_TERMINATED = 128 + 15


def failure_of(
    objects: RunObjects, workload: Workload, reports: Reports, seen: Sequence[Observation], at: float | None
) -> Failure:
    """Returns why a run failed. The caller must know that the run failed.

    The controller reports the failure of a run. For a StatefulSet, the pods report the failure.

    Args:
        seen: the observations of the current pods.
        at: the time of the failure, in seconds since the epoch.
    """
    restarts = objects.attempt
    failure = (
        diagnose([*_of_the_run(workload, objects, at), *seen], restarts=restarts)
        or _of_pods(objects.history.every_pod(), objects, reports, restarts, present=True)
        or _of_pods(objects.history.earlier.of(restarts - 1), objects, reports, restarts, present=False)
        or _from_messages(objects, workload, restarts)
    )
    until = at if at is not None else objects.events.latest
    earlier = [pod for attempt in objects.history.earlier.attempts() for pod in objects.history.earlier.of(attempt)]
    pods = (*earlier, *objects.history.predecessors(), *objects.history.every_pod())
    started = {pod.uid: pod.started for pod in pods if pod.started is not None}
    lines = objects.events.relevant_lines(
        until - _EVENTS_BEFORE, until + _EVENTS_AFTER, last_created(objects.pods), started
    )
    return replace(failure, events=tuple(line for line in lines if not (failure.error and failure.error in line)))


def cancelled(objects: RunObjects, workload: Workload) -> Failure:
    """Returns the failure of a run whose workload was deleted before the run had finished."""
    deletions = objects.history.deletions
    text = run_end.workload_deleted(workload.kind, killed=deletions.killed, period=deletions.period)
    return make_failure(FailureKind.CANCELLED, text, restarts=objects.attempt)


def lost(objects: RunObjects, workload: Workload | None) -> Failure:
    """Returns the failure of a run whose workload no longer exists and whose result is unknown."""
    text = run_end.end_not_observed(objects.name, workload.kind if workload is not None else "")
    return make_failure(FailureKind.LOST, text, restarts=objects.attempt)


def _of_the_run(workload: Workload, objects: RunObjects, at: float | None) -> list[Observation]:
    """Returns an observation of the run as a whole if its deadline has passed."""
    reasons = [workload.reason, *(job.reason for job in objects.jobs)]
    # The event may arrive before the changed object.
    reasons += [event.reason for event in objects.events.of([DEADLINE_EXCEEDED])]
    if DEADLINE_EXCEEDED not in [*reasons, *(pod.reason for pod in objects.pods)]:
        return []
    # Imported here, because the module imports pydantic. The import of pydantic takes longer than the whole command
    # `stepset list`.
    from stepset.spec.quantity import format_duration

    text = exceeded_sentence(format_duration(workload.deadline) if workload.deadline is not None else "")
    return [Observation("", at or 0.0, kind=FailureKind.DEADLINE_EXCEEDED, error=text)]


def _of_pods(
    pods: Sequence[Pod], objects: RunObjects, reports: Reports, restarts: int, *, present: bool
) -> Failure | None:
    """Diagnoses the failures of some pods. If no pod failed, the cause is the pod that was deleted first.

    If a pod of the current attempt no longer exists, it may have failed before the other pods were deleted. In this
    case, no deleted pod is reported as the cause.
    """
    placement = rank_placement(objects.workload, pods, reports)
    planned = sum(objects.workload.groups.values()) if present and objects.workload is not None else 0
    complete = len({(pod.group, pod.job, pod.index) for pod in pods}) >= planned
    for blame_deleted in (False, True) if complete else (False,):
        seen = observations(pods, objects, reports, placement, present=present, blame_deleted=blame_deleted)
        failure = diagnose(seen, restarts=restarts)
        if failure is not None:
            return failure
    return None


def _from_messages(objects: RunObjects, workload: Workload, restarts: int) -> Failure:
    """Returns the failure that the messages of controllers report. Used if the failed pods no longer exist."""
    failed = sorted((job for job in objects.jobs if job.ended == "Failed"), key=lambda job: job.at or math.inf)
    words = [*(job.message for job in failed), workload.message]
    text = next((each for each in words if each), workload.reason or run_end.NO_REASON)
    found, disrupted = _FAILED_WITH.search(text), _DISRUPTED.search(text)
    known = found is not None or disrupted is not None
    message = run_end.pods_gone(workload.kind, workload.name, text, cause_known=known)
    if found is not None:
        pod, code = found.group(1), to_number(found.group(2))
        # Only Jobs whose pods have an agent have rules for the agent's exit codes.
        kind = AGENT_CODES.get(code or 0) or kind_of(Observation(pod, 0.0, pod=pod, exit_code=code))
        advice = GONE_USER_ERROR_ADVICE if kind is FailureKind.USER_ERROR else ADVICE[kind]
        return make_failure(kind, message, pod=pod, exit_code=code, restarts=restarts, advice=advice)
    if disrupted is not None:
        return make_failure(FailureKind.INFRASTRUCTURE, message, pod=disrupted.group(1), restarts=restarts)
    # Either the training code had an error, or a running pod was deleted. The Job reports both cases in the same way.
    return make_failure(FailureKind.LOST, message, restarts=restarts, advice=GONE_ADVICE)


def restarts_of(objects: RunObjects, reports: Reports) -> list[str]:
    """Returns notes about the known causes of restarts of the run and of individual pods.

    The causes are failures of earlier attempts, failures of individual pods, and evictions by Kueue.
    """
    causes = {}
    for attempt in objects.history.earlier.attempts():
        pods = objects.history.earlier.of(attempt)
        failure = _of_pods(pods, objects, reports, attempt, present=False)
        if failure is not None:
            rows = rows_of(pods, objects, reports, rank_placement(objects.workload, pods, reports), frozenset())
            hang = reports.stalled.before_stop(rows, {pod.name: pod.uid for pod in pods}, failure)
            causes[attempt + 1] = with_known_hang(failure, hang).message
    if objects.attempt and objects.attempt not in causes and (cause := _from_events(objects, reports)):
        causes[objects.attempt] = cause
    notes = [restart_sentence(attempt, cause) for attempt, cause in causes.items()]
    evictions = (each.evicted_before for each in objects.kueue_workloads if each.admitted)
    notes += [restart_sentence(0, run_end.evicted_by_kueue(why)) for why in evictions if why]
    restarted = objects.history.predecessors()
    restarted += [_before_restart(pod) for pod in objects.pods if pod.before is not None and not pod.end]
    failures = [_of_pods([pod], objects, reports, 0, present=False) for pod in restarted[-_RESTARTS_SHOWN:]]
    return notes + [restart_sentence(0, failure.message) for failure in failures if failure is not None]


def failed_job(objects: RunObjects) -> Event | None:
    """Returns the event about the Job whose failure caused the last restart of the gang, or None if none is found."""
    current = {job.uid for job in objects.jobs}
    events = [*objects.events.of(_JOB_FAILED), *objects.events_of_former()]
    failed = [
        each for each in events if each.reason in _JOB_FAILED and each.about not in current and _group_of(each, objects)
    ]
    causes = [found[1] for each in objects.events.about("JobSet") if (found := _FIRST_FAILED.search(each.message))]
    first = [each for each in failed if causes and each.name == causes[-1]]
    return max(first or failed, key=lambda each: each.last, default=None)


def failed_pod(objects: RunObjects, job: Event) -> str:
    """Returns the name of the pod whose failure caused the event `job`, or "" if the pod is unknown.

    If the event does not contain the name, the controller may have deleted all pods of the Job except one. Then the
    remaining pod is the failed pod.
    """
    if found := _DISRUPTED.search(job.message) or _FAILED_WITH.search(job.message):
        return found[1]
    events = [each for each in (*objects.events.about("Job"), *objects.events_of_former()) if each.about == job.about]
    created, deleted = (
        {each.message.rpartition(": ")[2] for each in events if each.reason == reason}
        for reason in ("SuccessfulCreate", "SuccessfulDelete")
    )
    planned = objects.workload.groups.get(_group_of(job, objects)) if objects.workload is not None else None
    complete, failed = len(created) == planned, created - deleted
    return failed.pop() if complete and len(failed) == 1 else ""


def _group_of(job: Event, objects: RunObjects) -> str:
    """Returns the group of the Job that an event is about, or "" if the run has no Job of this name."""
    workload, (prefix, _, index) = objects.workload, job.name.rpartition("-")
    group = prefix.removeprefix(f"{objects.name}-")
    known = workload is not None and to_number(index, -1) in range(workload.replicas.get(group, 0))
    return group if known and job.kind == "Job" else ""


def _from_events(objects: RunObjects, reports: Reports) -> str:
    """Returns the cause of the gang's last restart, as reported by the events.

    Returns "" if no event reports a cause.
    """
    job = failed_job(objects)
    if job is None:
        return ""
    name = failed_pod(objects, job)
    if not name:
        return run_end.pod_of_job_gone(job.name)
    failure = _of_pods([_pod_from_events(name, job, objects)], objects, reports, objects.attempt, present=False)
    return failure.message if failure is not None else ""


def _pod_from_events(name: str, job: Event, objects: RunObjects) -> Pod:
    """Returns a `Pod` for a pod that no longer exists. Its fields contain what the events report."""
    events = [each for each in (*objects.events.about("Pod"), *objects.events_of_former()) if each.name == name]
    by_reason = {each.reason: each for each in sorted(events, key=lambda each: each.last)}
    assigned = _ASSIGNED.match(by_reason["Scheduled"].message) if "Scheduled" in by_reason else None
    status: dict[str, Any] = {"phase": "Failed"}
    if _DISRUPTED.search(job.message):
        known = next((old for old in _DISRUPTIONS if old in by_reason), "")
        unknown = run_end.UNKNOWN_DISRUPTION if assigned else run_end.UNREAD_DISRUPTION
        message = by_reason[known].message if known else unknown
        reason = _DISRUPTIONS.get(known, "")
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]
        code = None if "NodeNotReady" in by_reason else _TERMINATED
    elif found := _FAILED_WITH.search(job.message):
        code = to_number(found[2])
    else:
        code, status["message"] = None, run_end.NO_OUTPUT
    if code is not None:
        status["containerStatuses"] = [{"state": {"terminated": {"exitCode": code}}}]
    labels = {GROUP: _group_of(job, objects), COMPLETION_INDEX: name.split("-")[-2:][0]}
    spec = {"nodeName": assigned[1]} if assigned else {}
    return read_pod({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, deleted=True)


def _before_restart(pod: Pod) -> Pod:
    """Returns the state of a pod before its command was restarted."""
    return structs.replace(pod, end=pod.before, running=False, deletion_requested=None, disruption=None, reason="")


def stopping(workload: Workload, pods: Sequence[Pod], seen: Sequence[Observation]) -> list[str]:
    """Returns a note about the failure if other pods of the gang are still being stopped. Otherwise returns [].

    The stop may take a minute.
    """
    if workload.elastic or workload.pods_decide or all(pod.over for pod in pods):
        return []
    if not any((pod.over and not pod.succeeded) or pod.disruption for pod in pods):
        return []  # a rank failed in a pod that still runs, and the launcher may restart the rank
    # A pod's deletion may be observed before the reason of the deletion.
    failure = diagnose(o for o in seen if o.how != DELETED)
    return [run_end.others_stopping(failure.message)] if failure is not None else []
