"""Why a run failed, and why it was restarted.

Pods are examined first; controllers, which only report that something failed, where no pod is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.terminations import DELETED, OVERTIME, homes, observations
from stepset.watch.cluster.trouble import last_made
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import Observation, diagnose, kind_of, make_failure
from stepset.watch.present.sentences import restart_sentence
from stepset.watch.state import Failure, FailureKind

_EVENTS_BEFORE, _EVENTS_AFTER = 120.0, 2.0
"""Seconds around a failure whose events are shown."""
_AGAIN_TOLD = 3
"""Pods whose single restarts are reported."""

_FAILED_WITH = re.compile(r"for pod \S+?/(\S+) failed with exit code (\d+)")
_DISRUPTED = re.compile(r"[Pp]od \S+?/(\S+) has condition DisruptionTarget")


def failure_of(
    objects: RunObjects, workload: Workload, reports: Reports, seen: Sequence[Observation], at: float | None
) -> Failure:
    """Why a run failed that its controller, or a StatefulSet's pods, report as failed.

    `seen` are the ends of the present pods; `at` is in seconds since the epoch.
    """
    restarts = objects.attempt
    failure = (
        diagnose([*_of_the_run(workload, objects, at), *seen], restarts=restarts)
        or _of_pods(objects.every_pod(), objects, reports, restarts, present=True)
        or _of_pods(objects.earlier(restarts - 1), objects, reports, restarts, present=False)
        or _by_words(objects, workload, restarts)
    )
    until = at if at is not None else objects.events.latest
    told = objects.events.told(until - _EVENTS_BEFORE, until + _EVENTS_AFTER, last_made(objects.pods))
    return replace(failure, events=tuple(line for line in told if not (failure.error and failure.error in line)))


def cancelled(objects: RunObjects, workload: Workload) -> Failure:
    """The failure of a run whose workload was deleted before its end."""
    text = f"the run was cancelled: its {workload.kind} was deleted."
    return make_failure(FailureKind.CANCELLED, text, restarts=objects.attempt)


def lost(objects: RunObjects, workload: Workload | None) -> Failure:
    """The failure of a run whose workload is gone, with an unknown end."""
    what = f"the {workload.kind} of run {objects.name}" if workload is not None else f"run {objects.name}"
    text = f"{what} is gone, and nobody saw how it ended."
    return make_failure(FailureKind.LOST, text, restarts=objects.attempt)


def _of_the_run(workload: Workload, objects: RunObjects, at: float | None) -> list[Observation]:
    """The verdict on the run as a whole: its deadline passed."""
    reasons = [workload.reason, *(job.reason for job in objects.jobs)]
    # An event may arrive before the end of its object.
    reasons += [event.reason for event in objects.events.of([OVERTIME])]
    if OVERTIME not in [*reasons, *(pod.reason for pod in objects.pods)]:
        return []
    # Imported here because it imports pydantic, which takes longer than `stepset list`.
    from stepset.spec.quantity import format_duration

    limit = f" of {format_duration(workload.deadline)}" if workload.deadline is not None else ""
    text = f"the run took longer than its deadline{limit}."
    return [Observation("", at or 0.0, kind=FailureKind.DEADLINE_EXCEEDED, error=text)]


def _of_pods(
    pods: Sequence[Pod], objects: RunObjects, reports: Reports, restarts: int, *, present: bool
) -> Failure | None:
    """Diagnoses the ends of some pods; if none failed by itself, the pod that was deleted first is the cause."""
    where = homes(objects.workload, pods, reports)
    for blame_told in (False, True):
        seen = observations(pods, objects, reports, where, present=present, blame_told=blame_told)
        failure = diagnose(seen, restarts=restarts)
        if failure is not None:
            return failure
    return None


def _by_words(objects: RunObjects, workload: Workload, restarts: int) -> Failure:
    """What controllers report, where no pod is left."""
    words = [job.message for job in objects.jobs if job.ended == "Failed" and job.message] + [workload.message]
    text = next((each for each in words if each), workload.reason or "nobody says why")
    pod, code = "", None
    # Pods that fail by themselves remain: these were removed.
    kind = FailureKind.INFRASTRUCTURE
    if found := _FAILED_WITH.search(text):
        pod, code = found.group(1), int(found.group(2))
        kind = kind_of(Observation(pod, 0.0, pod=pod, exit_code=code))
    elif found := _DISRUPTED.search(text):
        pod = found.group(1)
    message = f"{workload.kind} {workload.name} failed, and its pods are gone: {text}"
    return make_failure(kind, message, pod=pod, exit_code=code, restarts=restarts)


def restarts_of(objects: RunObjects, reports: Reports) -> list[str]:
    """Why earlier attempts ended and single pods were restarted, as far as that is known."""
    notes = []
    for attempt in range(objects.attempt):
        failure = _of_pods(objects.earlier(attempt), objects, reports, attempt, present=False)
        if failure is not None:
            notes.append(restart_sentence(attempt + 1, failure.message))
    again = objects.predecessors() + [_as_it_was(pod) for pod in objects.pods if pod.before is not None and not pod.end]
    failures = [_of_pods([pod], objects, reports, 0, present=False) for pod in again[-_AGAIN_TOLD:]]
    return notes + [restart_sentence(0, failure.message) for failure in failures if failure is not None]


def _as_it_was(pod: Pod) -> Pod:
    """A pod whose command was restarted, as it was before."""
    return replace(pod, end=pod.before, running=False, asked=None, disruption=None, reason="")


def stopping(workload: Workload, pods: Sequence[Pod], seen: Sequence[Observation]) -> list[str]:
    """What has failed already while the rest of the gang is still being stopped: pods have a minute to end."""
    if workload.elastic or workload.kind == "StatefulSet" or all(pod.over for pod in pods):
        return []
    if not any((pod.over and not pod.succeeded) or pod.disruption for pod in pods):
        return []  # the launcher may restart a rank that failed in a running pod
    # A pod's deletion may be known before its reason.
    failure = diagnose(o for o in seen if o.how != DELETED)
    return [f"{failure.message.rstrip('.')}; the other pods are being stopped"] if failure is not None else []
