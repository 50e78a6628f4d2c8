"""Creates the run of a task instance, and ensures that the task instance has exactly one active run.

A worker may die at any time. The next worker finds the run by the stored record and by the name of the run.
run_record.py decides what the next worker does. This worker either continues the run of the earlier worker, or ends
that run and creates a new run. Only the creation of a run reads the job.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from stepset.backends.base import RunRequest
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.identity import TaskIdentity, labels_of
from stepset_airflow.run.clusters import AttachedRun, Clusters, Manifest, is_of
from stepset_airflow.run.job_fields import job_of_task
from stepset_airflow.run.record_store import RecordStore
from stepset_airflow.run.termination import Termination
from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.run_record import FollowSettings, Reattach, RunRecord, StartNew

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.backends.orphan_policy import OrphanStop
    from stepset.plan.model import LaunchPlan
    from stepset.sources import Sources
    from stepset.spec import TrainingJob

_log = logging.getLogger(__name__)

_NOT_IN_A_POD = (
    "on_orphan: stop is not available, the run continues when its owner has ended: the worker does not run in a pod"
)


class TaskJob:
    """The job of a task, and the content of the job's script or code. Airflow must have rendered the fields of `task`.

    Each method raises AirflowFailException if a parameter of the task is invalid, and BadInputError if the job is
    invalid or cannot be read.
    """

    def __init__(self, task: TrainingTask, context: Context) -> None:
        self._task, self._context = task, context

    def settings(self, access: ClusterAccess) -> FollowSettings:
        """Returns the settings with which a worker follows a run of the job."""
        from stepset.frameworks import make_plan

        task, (job, _) = self._task, self._read
        sources = log_sources(task.ranks, make_plan(job))
        return FollowSettings(
            job=job.name,
            target=task.target or FollowSettings.target,
            access=access,
            sources=None if sources is None else tuple(sorted(sources)),
            ranks=None if task.ranks is None else tuple(sorted(task.ranks)),
            admission_timeout=task.admission_timeout,
            startup_timeout=task.startup_timeout,
            quiet_after=None if sources == frozenset() else task.quiet_after,
        )

    def request(self, record: RunRecord, owner: str) -> RunRequest:
        """Returns the request to create the run of a record."""
        job, sources = self._read
        orphan = _orphan_stop(self._task.on_orphan, self._task.on_kill_action)
        notes = (_NOT_IN_A_POD,) if orphan is None and self._task.on_orphan == "stop" else ()
        self._task.log_warm_start()
        return RunRequest(
            job, sources, name=record.name, attempt=record.attempt, owner=owner, notes=notes, orphan=orphan
        )

    @cached_property
    def _read(self) -> tuple[TrainingJob, Sources]:
        from stepset.sources import read_sources

        self._task.prepare(self._context)
        job, base_dir = job_of_task(self._task, labels_of(self._context["ti"]))
        return job, read_sources(job, base_dir)


@dataclass(frozen=True)
class RunCreator:
    """Creates the runs of one task instance.

    Args:
        job: the job of the run. The creator reads the job after it has ended the earlier run.
        access: the parameters that select the cluster of a new run.
        target: the kind of the workload of a new run.
        clusters: the clusters of the task.
        records: the record of the task's run.
        termination: ends earlier runs.
        identity: identifies the task instance.
    """

    job: TaskJob
    access: ClusterAccess
    target: str
    clusters: Clusters
    records: RecordStore
    termination: Termination
    identity: TaskIdentity

    def run(self, step: Reattach | StartNew) -> AttachedRun:
        """Returns the run of the record, or creates a run. Raises the errors of `KubernetesBackend.make` and of `job`.

        After an error, the method can be called again.
        """
        if isinstance(step, StartNew):
            return self._start(step)
        if (attached := self.clusters.attach(step.record, self.identity.owner)) is None:
            return self._create(step.record)
        if attached.record != step.record:
            self.records.save(attached.record)
        return attached

    def _start(self, step: StartNew) -> AttachedRun:
        if step.before is not None:
            self._end_earlier(step.before)
        elif self.identity.epoch:
            # If a user clears a task, Airflow 3.4 deletes the record of the run. The generation is then unknown. The
            # try number is a suitable generation, because each earlier run was created in a try with a lower number.
            step = StartNew(generation=self.identity.ti.try_number)
            self._end_unrecorded()
        record = self._new_record(step)
        self.records.save(record)
        return self._create(record)

    def _create(self, record: RunRecord) -> AttachedRun:
        from stepset.errors import BadInputError

        backend, owner = self.clusters.backend(record), self.identity.owner
        try:
            made, notes = backend.make(self.job.request(record, owner))
        except BadInputError:
            existing = backend.workload(record.name)
            if existing is None or not is_of(existing, owner):
                raise
            # An earlier worker created this workload and died before it stored the uid. The job has changed since then.
            self.termination.end_completely(record, existing)
            generation = record.generation + 1
            record = replace(record, generation=generation, name=self.identity.run_name(generation))
            self.records.save(record)
            made, notes = backend.make(self.job.request(record, owner))
        record = replace(record, uid=str(made.workload["metadata"]["uid"]))
        self.records.save(record)
        return AttachedRun(record, made.workload, notes, found=made.adopted)

    def _new_record(self, step: StartNew) -> RunRecord:
        """Returns the record of a new run. No other run on the cluster uses the name that the record contains.

        If this task instance already has an active run without a record, the method returns a record for that run.
        """
        identity, generation, attempt = self.identity, step.generation, step.attempt
        namespace, follow = self.clusters.namespace(self.access), self.job.settings(self.access)
        while True:
            name = identity.run_name(generation)
            record = RunRecord(name, namespace, generation, epoch=identity.epoch, attempt=attempt, follow=follow)
            existing = self.clusters.backend(record).workload(name)
            # If the run belongs to this task instance, Airflow deleted and recreated the task instance.
            if existing is None or (
                step.generation == 1
                and is_of(existing, identity.owner)
                and not existing["metadata"].get("deletionTimestamp")
                and self.clusters.is_active(record, existing)
            ):
                return record
            generation += 1

    def _end_earlier(self, record: RunRecord) -> None:
        if not record.ended and (existing := self.clusters.find(record, self.identity.owner)) is not None:
            self._end(record, existing)

    def _end_unrecorded(self) -> None:
        """Ends the active runs of this task instance that have no record."""
        follow = FollowSettings(target=self.target, access=self.access)
        record = RunRecord("", self.clusters.namespace(self.access), follow=follow)
        for existing in self.clusters.backend(record).owned(self.identity.owner):
            if self.clusters.is_active(record, existing):
                self._end(record, existing)

    def _end(self, record: RunRecord, workload: Manifest) -> None:
        _log.info("ending run %s of an earlier try", workload["metadata"]["name"])
        self.termination.end_completely(record, workload)


def _orphan_stop(on_orphan: str, on_kill_action: str) -> OrphanStop | None:
    """Returns how the run is stopped if the pod of the worker terminates. Returns None if the run is not stopped.

    The result is None if `on_orphan` is `keep`, or if the worker does not run in a pod.
    """
    if on_orphan != "stop":
        return None
    from stepset.backends.kubernetes.orphans.own_pod import own_pod
    from stepset.backends.orphan_policy import OrphanStop

    pod = own_pod()
    return None if pod is None else OrphanStop(pod, "suspend" if on_kill_action == "suspend" else "delete")


def log_sources(ranks: frozenset[int] | None, plan: LaunchPlan) -> frozenset[str] | None:
    """Returns the sources whose lines the task log shows. None means all sources.

    A source is a name such as `rank 0`, `node 0`, `launcher` or `prepare-0`. The returned sources are the ranks, the
    launchers of these ranks, and all pods that are not nodes of the run.

    `ranks` is the set of the ranks whose lines are shown. If `ranks` is None, all ranks are shown, and the function
    returns None.
    """
    from stepset.plan.model import LAUNCHER, NODE
    from stepset.plan.ranks import rank_ranges

    if not ranks:
        return ranks if ranks is None else frozenset()
    held = rank_ranges(plan).get(NODE)
    found = {f"rank {rank}" for rank in ranks}
    for group in plan.groups:
        if group.name == LAUNCHER:
            found.add(LAUNCHER)
        elif group.name != NODE:
            found |= {f"{group.name}-{index}" for index in range(group.count)}
        elif held is not None:
            found |= {f"node {(rank - held.first) // held.per_pod}" for rank in ranks}
        else:
            found |= {f"node {index}" for index in range(group.count)}
    return frozenset(found)
