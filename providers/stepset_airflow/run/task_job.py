"""Reads the job of a task. Only the creation of a run needs the job."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.identity import labels_of
from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.run_record import FollowSettings, RunRecord

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.backends.base import RunRequest
    from stepset.backends.orphan_policy import OrphanStop
    from stepset.plan.model import LaunchPlan
    from stepset.sources import Sources
    from stepset.spec import TrainingJob

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
        from stepset.backends.base import RunRequest

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
        job, base_dir = self._task.job_and_base(labels_of(self._context["ti"]))
        return job, read_sources(job, base_dir)


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
