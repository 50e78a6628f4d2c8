"""Runs the job of a step on a cluster.

The step creates or finds the run, and follows the run. When the step is terminated, the input `on_interrupt` determines
whether the step suspends the run, deletes the run, or leaves the run unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.stop import delete, stays_suspended, suspend
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.step.create import Manifest, RunCreator
from stepset_kfp.step.interrupt import BUDGET, Interrupt
from stepset_kfp.step.reattach import reattach
from stepset_kfp.step.run_record import EndedRun, RunRecord, record_of
from stepset_kfp.step.step_job import StepJob
from stepset_kfp.step.step_log import StepLog, log_lines

BUDGET_OUTSIDE_PODS = 10.0
"""The number of seconds for the last request of a step outside of a pod. argoexec does not kill such a step."""
CREATION_GRACE = 0.5
"""The number of seconds for which a terminated step waits until the run exists.

The step waits if the step has sent a request to create the run, but has not received the response."""
_POLL_SECONDS = 0.05


def run_on_cluster(job: StepJob, given: Mapping[str, Any], log: StepLog) -> EndedRun:
    """Creates or finds the run of a step, and follows the run until it has ended.

    If the run exists, the function does not read the job. Raises the errors of `reattach`.
    """
    with connect(interface="kfp") as connection, connect(interface="kfp") as spare:
        namespace = given["namespace"] or connection.namespace
        creator = RunCreator(connection, namespace, job, given)
        findable = creator.identity is not None
        last = LastRequest(spare, namespace, creator.target, creator.owner, findable, given["on_interrupt"])
        # The signal handlers are installed before the search for the run. If a run of an earlier try exists, a signal
        # during the search must also stop this run.
        with Interrupt(spare, last, BUDGET if findable else BUDGET_OUTSIDE_PODS) as interrupt:
            workload, notes = reattach(connection, creator)
            interrupt.workload = workload
            log_lines(f"stepset: {workload['kind']} {workload['metadata']['name']} in namespace {namespace}")
            record = record_of(workload) or RunRecord.of(given, job.inputs.job)
            log.ranks = ranks_to_log(record.log_ranks)
            backend = KubernetesBackend(connection, namespace=namespace, timeouts=record.timeouts, interface="kfp")
            return EndedRun(backend.follow(workload, log, notes).wait(), record.model)


@dataclass(frozen=True)
class LastRequest:
    """Suspends or deletes the run of a terminated step.

    Args:
        connection: a connection that only this object uses.
        namespace: the namespace of the run.
        target: the kind of the workload.
        owner: the hash that identifies the step.
        findable: whether a retry can find the run. If no retry can find the run, the run is deleted.
        how: the input `on_interrupt`: suspend, delete or leave. With `suspend`, the run is deleted if the run would not
            stay suspended.
    """

    connection: Connection
    namespace: str
    target: str
    owner: str
    findable: bool
    how: str

    def __call__(self, workload: Manifest | None) -> str:
        """Suspends or deletes the run, or leaves it running. Returns a message for the log.

        `workload` is the workload of the run, or None if the step does not know the workload yet.
        """
        if self.how == "leave":
            return "the run continues" if workload is None else f"run {workload['metadata']['name']} continues"
        backend = KubernetesBackend(self.connection, namespace=self.namespace, target=self.target, interface="kfp")
        if workload is None and (workload := self._being_created(backend)) is None:
            return "no run was created"
        keep = self.how == "suspend" and self.findable and stays_suspended(workload)
        backend.end(workload, suspend if keep else delete)
        return f"run {workload['metadata']['name']} is {'suspended' if keep else 'deleted'}"

    def _being_created(self, backend: KubernetesBackend) -> Manifest | None:
        """Waits up to CREATION_GRACE seconds for the workload of this step's run, and returns it.

        Returns None if the workload does not exist after this time.
        """
        until = time.monotonic() + CREATION_GRACE
        while not (found := backend.owned(self.owner)):
            if time.monotonic() > until:
                return None
            time.sleep(_POLL_SECONDS)
        return found[0]
