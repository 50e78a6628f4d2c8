"""Reads the job of a task. Only the creation of a run needs the job."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.identity import labels_of
from stepset_airflow.logs.log_sources import log_sources
from stepset_airflow.run.orphan import NOT_IN_A_POD, orphan_stop
from stepset_airflow.run.run_record import FollowSettings, RunRecord
from stepset_airflow.run.training_task import TrainingTask

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.backends.base import RunRequest
    from stepset.sources import Sources
    from stepset.spec import TrainingJob


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
        from stepset.backends.base import RunRequest

        job, sources = self._read
        orphan = orphan_stop(self._task.on_orphan, self._task.on_kill_action)
        notes = (NOT_IN_A_POD,) if orphan is None and self._task.on_orphan == "stop" else ()
        self._task.log_warm_start()
        return RunRequest(
            job, sources, name=record.name, attempt=record.attempt, owner=owner, notes=notes, orphan=orphan
        )

    @cached_property
    def _read(self) -> tuple[TrainingJob, Sources]:
        from stepset.sources import read_sources

        self._task.prepare(self._context)
        job, base_dir = self._task.job_and_base(labels_of(self._context["ti"]))
        return job, read_sources(job, base_dir)
