"""Words how a run as a whole ended on a cluster, if not one of its ranks is known to have failed first.

Contains only pure functions. How a process ended is worded by `process_end`.
"""

from __future__ import annotations

NO_REASON = "no reason is reported"
NO_OUTPUT = "its exit code and its output no longer exist; it may also have been deleted"
"""What is known about a pod that no longer exists, if no event contains its exit code."""
UNREAD_DISRUPTION = "an eviction, a preemption or the drain of its node"
"""The disruption of a pod that no longer exists, if the events about the pod cannot be read."""
UNKNOWN_DISRUPTION = "most likely an eviction, for example to drain its node; no event states the cause"
TERMINATING = "the run is being deleted; its pods have time to end"
"""The note on a run whose pods are being stopped after its deletion."""


def workload_deleted(kind: str, *, killed: bool, period: float) -> str:
    """Returns that a run was cancelled.

    Args:
        kind: the kind of the workload that was deleted.
        killed: whether the pods had no time to exit.
        period: the time that the pods had to exit, in seconds. 0 if this is not known.
    """
    time = "; its pods were killed" if killed else f"; its pods had {period:g} s to end" if period else ""
    return f"the run was cancelled: its {kind} was deleted{time}."


def end_not_observed(run: str, kind: str = "") -> str:
    """Returns that a run no longer exists. `kind` is the kind of its workload, or "" if the kind is unknown."""
    what = f"the {kind} of run {run}" if kind else f"run {run}"
    return f"{what} no longer exists, and its end was not observed."


def pods_gone(kind: str, name: str, message: str, *, cause_known: bool) -> str:
    """Returns what the controller of a workload reports about failed pods that no longer exist."""
    why = message if cause_known else f"the cause is unknown, and the controller reports: {message}"
    return f"{kind} {name} failed, and its failed pods no longer exist{': ' if cause_known else '; '}{why}"


def pod_of_job_gone(job: str) -> str:
    """Returns why a gang was restarted, if only the Job of the failed pod is known."""
    return f"a pod of Job {job} failed or was deleted, and it no longer exists"


def evicted_by_kueue(why: str) -> str:
    """Returns why Kueue has stopped a run, which was admitted again."""
    return f"Kueue had evicted the run: {why}"


def others_stopping(failure: str) -> str:
    """Returns a note about the message of a failure, while the other pods of the gang are being stopped."""
    return f"{failure.rstrip('.')}; the other pods are being stopped"
