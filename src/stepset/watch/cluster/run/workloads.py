"""`RunWorkloads`, the workload of a run and the JobSet and Jobs that it controls."""

from __future__ import annotations

from msgspec import structs

from stepset.targets.workload_kinds import CREATORS
from stepset.watch.cluster.ownership import Owner
from stepset.watch.cluster.planned import job_of
from stepset.watch.cluster.workload import Workload, combined

_JOBS_KEPT = 1000  # the number of Jobs, including deleted ones, whose pods may still change


class RunWorkloads:
    """The last observed state of the workloads of a run.

    Attributes:
        top: the top-level workload. None if it was not observed yet.
        whole: the top-level workload. A TrainJob has the state of its JobSet.
        jobs: the Jobs of the current attempt, by name.
        attempt: the number of restarts of the whole gang so far.
    """

    def __init__(self) -> None:
        self.top: Workload | None = None
        self.whole: Workload | None = None
        self.jobs: dict[str, Workload] = {}
        self.attempt = 0
        self._inner: Workload | None = None
        self._job_by_uid: dict[str, Workload] = {}

    @property
    def uids(self) -> set[str]:
        """The uids of the workloads that may wait in a queue of Kueue."""
        return {each.uid for each in (self.top, self._inner) if each is not None}

    def see_top(self, seen: Workload) -> bool:
        """Updates the top-level workload. Returns whether it has changed."""
        before = self.top
        if before is not None and before.planned > seen.planned:
            seen = structs.replace(seen, planned=before.planned)
        self.top = seen
        self._combine(seen.attempt)
        return before != seen

    def see_controlled(self, seen: Workload, deleted: bool) -> bool | None:
        """Updates a JobSet of a TrainJob, or a Job of a JobSet. Returns whether the state of the run has changed.

        Returns None if the object does not belong to the run, or if its owner is not known yet. The watch of Jobs may
        also be ahead of the watch of JobSets by more than one restart.
        """
        top = self.top
        if seen.kind == "JobSet" and top is not None and top.kind == "TrainJob" and seen.owner == top.uid:
            return self._see_inner(seen, deleted)
        jobset = top if top is not None and top.kind == "JobSet" else self._inner
        job = job_of(jobset, seen) if jobset is not None else None
        return None if job is None else self._see_job(job)

    def creator(self, owner: Owner) -> Workload | None:
        """Returns the Job or workload that creates the pods with this controller, or None if it is unknown."""
        top = self.top
        if top is None or top.kind in CREATORS:
            return self._job_by_uid.get(owner.uid)
        return top if owner.uid == top.uid else None

    def _see_inner(self, seen: Workload, deleted: bool) -> bool:
        before = self._inner
        if before is not None and before.uid != seen.uid and (deleted or seen.created < before.created):
            return False  # the TrainJob's controller has replaced this JobSet
        self._inner = None if deleted else seen
        self._combine(seen.attempt)
        return before != self._inner

    def _see_job(self, seen: Workload) -> bool:
        if seen.uid not in self._job_by_uid and len(self._job_by_uid) >= _JOBS_KEPT:
            del self._job_by_uid[next(iter(self._job_by_uid))]
        self._job_by_uid[seen.uid] = seen
        before = self.jobs.get(seen.name)
        replaced = before is not None and before.uid != seen.uid and before.created > seen.created
        if seen.attempt < self.attempt or replaced:
            return False
        self._advance(seen.attempt)
        self.jobs[seen.name] = seen
        return before != seen

    def _combine(self, attempt: int) -> None:
        self.whole = combined(self.top, self._inner) if self.top is not None else None
        self._advance(attempt)

    def _advance(self, attempt: int) -> None:
        if attempt > self.attempt:
            self.attempt = attempt
            self.jobs = {name: job for name, job in self.jobs.items() if job.attempt >= attempt}
