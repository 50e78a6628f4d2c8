"""Computes the `RunStatus` of a run from its objects and its agents' reports. Contains only pure functions.

The first rule of the table `RULES` that applies decides the phase of the run, and how the run has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stepset.run_status import Phase, RankStatus, RunStatus
from stepset.watch.cluster.failed import cancelled, failure_of, lost, restarts_of, stopping
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.rank_rows import rows_of, succeeded_rows
from stepset.watch.cluster.terminations import RankPlacement, observations, rank_placement
from stepset.watch.cluster.trouble import NODE_LOST, OVERDUE, QUEUED, STARTING, Trouble, trouble_of
from stepset.watch.cluster.workload import Workload, stored_fields
from stepset.watch.diagnose import Observation
from stepset.watch.present.run_end import TERMINATING
from stepset.watch.state.reports import Reports
from stepset.watch.state.rules import Decision, decide, ended

POD_ENDS_TIMEOUT = 5.0
"""The number of seconds to wait for the exits of pods after a run has finished. A busy server reports exits late."""
PODS_DELETED_WITHIN = 15.0
"""The number of seconds to wait until the pods of a deleted run are deleted. Orphaned pods are never deleted."""


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
        **stored_fields(workload),
    )
    status = _final(status, state, decision) if decision.phase.final else _current(status, state)
    return reports.with_hang_and_slow(status, state.uids)


def _current(status: RunStatus, state: State) -> RunStatus:
    """Returns the status of a run that has not finished."""
    pods, trouble = state.pods, state.trouble
    stopped = [*stopping(state.workload, pods, state.seen), *_waiting_for_peers(pods, state.reports)]
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


def _waiting_for_peers(pods: Sequence[Pod], reports: Reports) -> list[str]:
    """Returns a note about the peers that an agent waits for."""
    for pod in pods:
        report = reports.of(pod.uid)
        if report.missing and not pod.over:
            more = f" and {len(report.missing) - 3} more" if len(report.missing) > 3 else ""
            return [f"{pod.source} waits for {', '.join(report.missing[:3])}{more}"]
    return []


@dataclass(frozen=True)
class State:
    """The input of the rules, and values that several rules need. `now` is in seconds since the epoch."""

    objects: RunObjects
    workload: Workload
    pods: Sequence[Pod]
    reports: Reports
    now: float

    @cached_property
    def placement(self) -> RankPlacement:
        return rank_placement(self.workload, self.pods, self.reports)

    @cached_property
    def seen(self) -> Sequence[Observation]:
        return observations(self.pods, self.objects, self.reports, self.placement)

    @cached_property
    def rows(self) -> Sequence[RankStatus]:
        stopped = frozenset(each.pod for each in self.seen if each.stopped)
        return rows_of(self.pods, self.objects, self.reports, self.placement, stopped)

    @property
    def uids(self) -> dict[str, str]:
        """The uid of each pod. The uid differs between attempts, so the evidence of an earlier attempt never counts."""
        return {pod.name: pod.uid for pod in self.pods}

    @cached_property
    def trouble(self) -> Trouble | None:
        return trouble_of(self.objects, self.workload, self.pods, self.now)

    @property
    def deleted(self) -> bool:
        """Whether the deletion of the run was requested or observed."""
        return self.objects.absence == "deleted" or self.workload.deletion_requested is not None

    @property
    def world(self) -> list[Pod]:
        """The pods of the group that must succeed."""
        return [pod for pod in self.pods if pod.group == self.workload.success]


def _stored(state: State) -> Decision | None:
    """The result is stored, and the controller confirms it."""
    verdict = state.workload.verdict
    return None if verdict is None else Decision(verdict.phase, verdict=verdict)


def _reported(state: State) -> Decision | None:
    """The controller reports the end."""
    ended = state.workload.ended
    return _finished(state, Phase(ended), state.workload.at) if ended else None


def _pods_ended(state: State) -> Decision | None:
    """The pods of a StatefulSet have ended. The StatefulSet itself never completes (docs/targets.md)."""
    workload = state.workload
    if workload.suspended or not workload.pods_decide:
        return None
    # A pod that is being deleted will be replaced. Therefore it has no verdict.
    ends = [pod.end for pod in state.pods if pod.end is not None and pod.deletion_requested is None and not pod.deleted]
    failed = [end.at or 0.0 for end in ends if end.exit_code != 0]
    if len(ends) > workload.counted:
        return None  # the controller does not count all of these pods
    if failed:
        return _finished(state, Phase.FAILED, min(failed))
    if len(ends) < workload.needed:
        return None
    return _finished(state, Phase.SUCCEEDED, max(end.at or 0.0 for end in ends))


def _pods_succeeded(state: State) -> Decision | None:
    """All pods have succeeded.

    The controller reports the success some seconds after the last pod has succeeded. The rule applies only if the
    status of the Jobs already includes all successful pods. The pods alone prove nothing, because other users can
    create pods. If a pod failed or was replaced, only the controller can decide.
    """
    workload, pods = state.workload, state.pods
    ours = bool(workload.job)  # the Job of another tool may add pods later
    if not ours or workload.suspended or workload.pods_decide or workload.restarting:
        return None
    if workload.deletion_requested is not None:
        return None
    if any(not pod.done or pod.deleted or pod.deletion_requested is not None for pod in pods):
        return None
    if any(sum(pod.group == name for pod in pods) < count for name, count in workload.groups.items()):
        return None
    recorded = sum(job.succeeded for job in (state.objects.jobs if workload.replicas else [workload]))
    ends = _ends(pods)
    counted = recorded >= sum(workload.groups.values())
    return _finished(state, Phase.SUCCEEDED, max(ends)) if ends and counted else None


def _deleted(state: State) -> Decision | None:
    """The run was deleted, and no pod has time left to save its state."""
    pods, requested = state.pods, state.workload.deletion_requested
    if not state.deleted:
        return None
    if not state.objects.absence and requested is not None and have_time(pods, requested + OVERDUE, state.now):
        return None
    # The deletion time of the workload may be unknown. Then the earliest deletion time of its pods is used.
    first = min((pod.deletion_requested for pod in pods if pod.deletion_requested is not None), default=state.now)
    failure = cancelled(state.objects, state.workload)
    return Decision(Phase.FAILED, at=max([requested or first, *_ends(pods)]), failure=failure)


def _missing(state: State) -> Decision | None:
    """The workload no longer exists, and no watch has reported its deletion."""
    if state.objects.absence != "missing":
        return None
    times = (at for pod in state.pods for at in (pod.deletion_requested, pod.end.at if pod.end else None, pod.started))
    at = max((at for at in times if at is not None), default=state.now)
    return Decision(Phase.LOST, at=at, failure=lost(state.objects, state.workload))


def _suspended(state: State) -> Decision | None:
    """A queue or a user has suspended the run."""
    if not state.workload.suspended:
        return None
    queued = state.workload.queue or state.objects.kueue_workloads
    return Decision(Phase.PENDING, QUEUED) if queued else Decision(Phase.SUSPENDED)


def _running(state: State) -> Decision | None:
    """Enough pods have started.

    Deleted pods are counted as started, because it is not decided yet whether the run finishes or restarts.
    """
    if sum(pod.running or pod.started is not None for pod in state.world) < state.workload.needed:
        return None
    lost_node = state.trouble is not None and state.trouble.reason == NODE_LOST
    return Decision(Phase.RUNNING, NODE_LOST if lost_node else "")


def _waiting(state: State) -> Decision:
    """The run waits for its pods, for the first time or again."""
    history, success = state.objects.history, state.workload.success
    again = state.workload.restarting or state.objects.attempt > 0 or history.replacements(success) > 0
    again = again or any(pod.restarts for pod in state.world)
    queued = QUEUED if state.workload.enqueued and not state.pods else STARTING
    reason = state.trouble.reason if state.trouble is not None else queued
    return Decision(Phase.RESTARTING if again else Phase.PENDING, reason)


RULES = (_stored, _reported, _pods_ended, _pods_succeeded, _deleted, _missing, _suspended, _running, _waiting)


def have_time(pods: Sequence[Pod], deleted: float, now: float) -> bool:
    """Returns whether pods of a run that was deleted are within their grace period. These pods may save their state.

    `deleted` is the time of the deletion. The pods are deleted a moment later.
    """
    dues = [pod.due + OVERDUE if pod.due is not None else deleted + PODS_DELETED_WITHIN for pod in pods if not pod.over]
    return any(now < due for due in dues)


def _finished(state: State, phase: Phase, at: float | None) -> Decision:
    """Returns the decision that the run has finished with this phase.

    A stored verdict with this phase is used although the workload does not confirm the verdict yet, so that all
    processes that read the run report the same result.
    """
    stored = state.workload.unconfirmed
    if stored is not None and stored.phase is phase:
        return Decision(phase, verdict=stored)
    if phase is Phase.SUCCEEDED:
        return Decision(phase, at=at)
    return Decision(phase, at=at, failure=failure_of(state.objects, state.workload, state.reports, state.seen, at))


def _ends(pods: Sequence[Pod]) -> list[float]:
    return [pod.end.at for pod in pods if pod.end is not None and pod.end.at is not None]
