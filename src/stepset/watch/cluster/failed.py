"""Why a run failed, and why it was restarted.

The cause is read from the pods; if no pod is left, from the messages of controllers, which have fewer details.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from stepset.run_status import Failure, FailureKind
from stepset.unstructured import to_number
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.terminations import DEADLINE_EXCEEDED, DELETED, observations, rank_placement
from stepset.watch.cluster.trouble import last_created
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import Observation, diagnose, kind_of, make_failure
from stepset.watch.present.sentences import restart_sentence

_EVENTS_BEFORE, _EVENTS_AFTER = 120.0, 2.0
"""Seconds before and after a failure from which events are shown."""
_RESTARTS_SHOWN = 3
"""Number of restarts of single pods that are reported."""

_FAILED_WITH = re.compile(r"for pod \S{1,253}?/(\S{1,253}) failed with exit code (\d{1,9})")
_DISRUPTED = re.compile(r"[Pp]od \S{1,253}?/(\S{1,253}) has condition DisruptionTarget")


def failure_of(
    objects: RunObjects, workload: Workload, reports: Reports, seen: Sequence[Observation], at: float | None
) -> Failure:
    """Why a run failed; call this only if its controller, or a StatefulSet's pods, report a failure.

    `seen` are the ends of the current pods; `at` is the time of the failure in seconds since the epoch.
    """
    restarts = objects.attempt
    failure = (
        diagnose([*_of_the_run(workload, objects, at), *seen], restarts=restarts)
        or _of_pods(objects.every_pod(), objects, reports, restarts, present=True)
        or _of_pods(objects.earlier(restarts - 1), objects, reports, restarts, present=False)
        or _from_messages(objects, workload, restarts)
    )
    until = at if at is not None else objects.events.latest
    lines = objects.events.relevant_lines(until - _EVENTS_BEFORE, until + _EVENTS_AFTER, last_created(objects.pods))
    return replace(failure, events=tuple(line for line in lines if not (failure.error and failure.error in line)))


def cancelled(objects: RunObjects, workload: Workload) -> Failure:
    """The failure of a run whose workload was deleted before its end."""
    text = f"the run was cancelled: its {workload.kind} was deleted."
    return make_failure(FailureKind.CANCELLED, text, restarts=objects.attempt)


def lost(objects: RunObjects, workload: Workload | None) -> Failure:
    """The failure of a run whose workload no longer exists and whose end is unknown."""
    what = f"the {workload.kind} of run {objects.name}" if workload is not None else f"run {objects.name}"
    text = f"{what} no longer exists, and its end was not observed."
    return make_failure(FailureKind.LOST, text, restarts=objects.attempt)


def _of_the_run(workload: Workload, objects: RunObjects, at: float | None) -> list[Observation]:
    """A failure of the run as a whole: its deadline has passed."""
    reasons = [workload.reason, *(job.reason for job in objects.jobs)]
    # The event may arrive before the change of the object.
    reasons += [event.reason for event in objects.events.of([DEADLINE_EXCEEDED])]
    if DEADLINE_EXCEEDED not in [*reasons, *(pod.reason for pod in objects.pods)]:
        return []
    # Imported here because it imports pydantic, which takes longer than all of `stepset list`.
    from stepset.spec.quantity import format_duration

    limit = f" of {format_duration(workload.deadline)}" if workload.deadline is not None else ""
    text = f"the run took longer than its deadline{limit}."
    return [Observation("", at or 0.0, kind=FailureKind.DEADLINE_EXCEEDED, error=text)]


def _of_pods(
    pods: Sequence[Pod], objects: RunObjects, reports: Reports, restarts: int, *, present: bool
) -> Failure | None:
    """Diagnoses the ends of some pods. If none failed by itself, the cause is the pod that was deleted first."""
    placement = rank_placement(objects.workload, pods, reports)
    for blame_deleted in (False, True):
        seen = observations(pods, objects, reports, placement, present=present, blame_deleted=blame_deleted)
        failure = diagnose(seen, restarts=restarts)
        if failure is not None:
            return failure
    return None


def _from_messages(objects: RunObjects, workload: Workload, restarts: int) -> Failure:
    """The failure in the messages of controllers, if no pod is left."""
    words = [job.message for job in objects.jobs if job.ended == "Failed" and job.message] + [workload.message]
    text = next((each for each in words if each), workload.reason or "no reason is reported")
    pod, code = "", None
    # A Job keeps pods that fail by themselves. These pods no longer exist, so something deleted them.
    kind = FailureKind.INFRASTRUCTURE
    if found := _FAILED_WITH.search(text):
        pod, code = found.group(1), to_number(found.group(2))
        kind = kind_of(Observation(pod, 0.0, pod=pod, exit_code=code))
    elif found := _DISRUPTED.search(text):
        pod = found.group(1)
    message = f"{workload.kind} {workload.name} failed, and its pods no longer exist: {text}"
    return make_failure(kind, message, pod=pod, exit_code=code, restarts=restarts)


def restarts_of(objects: RunObjects, reports: Reports) -> list[str]:
    """Why earlier attempts ended and single pods were restarted, as far as known."""
    notes = []
    for attempt in objects.earlier_attempts:
        failure = _of_pods(objects.earlier(attempt), objects, reports, attempt, present=False)
        if failure is not None:
            notes.append(restart_sentence(attempt + 1, failure.message))
    restarted = objects.predecessors()
    restarted += [_before_restart(pod) for pod in objects.pods if pod.before is not None and not pod.end]
    failures = [_of_pods([pod], objects, reports, 0, present=False) for pod in restarted[-_RESTARTS_SHOWN:]]
    return notes + [restart_sentence(0, failure.message) for failure in failures if failure is not None]


def _before_restart(pod: Pod) -> Pod:
    """The state of a pod before its command was restarted."""
    return replace(pod, end=pod.before, running=False, deletion_requested=None, disruption=None, reason="")


def stopping(workload: Workload, pods: Sequence[Pod], seen: Sequence[Observation]) -> list[str]:
    """A note about a failure while the rest of the gang is still being stopped, which may take a minute."""
    if workload.elastic or workload.kind == "StatefulSet" or all(pod.over for pod in pods):
        return []
    if not any((pod.over and not pod.succeeded) or pod.disruption for pod in pods):
        return []  # the launcher may restart a rank that failed in a running pod
    # The deletion of a pod may be observed before its reason.
    failure = diagnose(o for o in seen if o.how != DELETED)
    return [f"{failure.message.rstrip('.')}; the other pods are being stopped"] if failure is not None else []
