"""RunEndTrigger, which waits for a run that another task or program manages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.missing_run import missing_run, name_problem
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.workload_reference import workload_reference

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.client import Client
    from stepset.backends.kubernetes.api.namespaced import NamespacedClient

log = structlog.get_logger(logger_name=__name__)


class RunEndTrigger(DistributedTrainTrigger):
    """Waits until a run has finished, and writes the phases of the run to the log.

    Another task or program manages the run. The run may not exist yet. The fields have the same meaning as the
    parameters of DistributedTrainSensor.
    """

    def __init__(
        self,
        run_name: str,
        target: str = "jobset",
        poll_interval: float = 10,
        kubernetes_conn_id: str | None = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
    ) -> None:
        self._reported_missing = False
        # If the task starts in the triggerer, Airflow renders these attributes.
        self.run_name, self.target = run_name, target
        self.kubernetes_conn_id, self.namespace, self.in_cluster = kubernetes_conn_id, namespace, in_cluster
        self.cluster_context, self.config_file = cluster_context, config_file
        super().__init__(ClusterAccess.of(self).to_dict(), {}, sources=(), ranks=(), poll_interval=poll_interval)

    async def _end_run_if_task_ended(self) -> None:
        """Does nothing, because the run does not belong to this task."""

    async def _follow(self) -> dict[str, Any]:
        from stepset.backends.kubernetes.api.namespaced import NamespacedClient
        from stepset.backends.kubernetes.api.permissions import Grant
        from stepset.backends.kubernetes.api.replies import RefusedError
        from stepset.backends.kubernetes.api.resources import WORKLOADS
        from stepset.errors import BadInputError

        if (problem := name_problem(self.run_name)) is not None:  # Airflow may have rendered the name
            raise BadInputError(problem)
        async with client_of(ClusterAccess.of(self)) as client:
            namespace = self.namespace or (await client.open()).namespace
            namespaced = NamespacedClient(client, namespace, Grant("airflow", (self.target,)))
            path = namespaced.one(WORKLOADS[self.target], self.run_name)
            try:
                found = await wait_for_object(
                    client, path, self.poll_interval, lambda: self._report_missing(namespaced)
                )
            except RefusedError as error:
                raise namespaced.with_remedy(error) from error
            self.workload = workload_reference(found, self.target)
        self.access = {**ClusterAccess.of(self).to_dict(), "namespace": namespace}
        return await super()._follow()

    async def _report_missing(self, namespaced: NamespacedClient) -> None:
        """Logs that the run does not exist, once for each trigger."""
        from stepset.backends.kubernetes.find import find
        from stepset.errors import RunNotFoundError

        if self._reported_missing:
            return
        place, newest = f"namespace {namespaced.namespace}", None
        with suppress(RunNotFoundError):
            newest = (await find(namespaced, self.run_name, (self.target,)))["metadata"]["name"]
        if newest != self.run_name:  # the run may have been created in the meantime
            log.warning(missing_run(self.run_name, place, newest))
        self._reported_missing = True


async def wait_for_object(
    client: Client, path: str, interval: float, on_missing: Callable[[], Awaitable[None]] | None = None
) -> Mapping[str, Any]:
    """Waits until an object exists, and returns the object. Sends a request every `interval` seconds.

    `on_missing` is called each time the server responds that the object does not exist.

    If the server refuses a request temporarily, the function continues to wait. If the server refuses requests
    permanently, the function raises InfrastructureError.
    """
    from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
    from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError, UnreachableError
    from stepset.errors import InfrastructureError

    grace = RefusalGrace()
    while True:
        try:
            reply = await client.get(path)
            if reply.accepted:
                return reply.body
            if reply.status != NOT_FOUND:
                raise RefusedError(reply)
            grace.granted()
            if on_missing is not None:
                await on_missing()
        except UnreachableError:
            grace.unreachable()
        except InfrastructureError:
            if not grace.covers(asyncio.get_running_loop().time()):
                raise
        await asyncio.sleep(interval)
