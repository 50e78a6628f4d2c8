"""RunEndTrigger: waits for a run that another task or program manages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.workload_reference import workload_reference

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.client import Client


class RunEndTrigger(DistributedTrainTrigger):
    """Waits for the end of a run that another task or program manages, and reports its phases.

    The run may not exist yet. The fields are those of the sensor.
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
        # Airflow renders these attributes for a task that starts from its trigger.
        self.run_name, self.target = run_name, target
        self.kubernetes_conn_id, self.namespace, self.in_cluster = kubernetes_conn_id, namespace, in_cluster
        self.cluster_context, self.config_file = cluster_context, config_file
        super().__init__(ClusterAccess.of(self).to_dict(), {}, sources=(), ranks=(), poll_interval=poll_interval)

    async def _end_run_if_task_ended(self) -> None:
        """Does nothing: the run does not belong to this task."""

    async def _follow(self) -> dict[str, Any]:
        from stepset.backends.kubernetes.api.namespaced import NamespacedClient
        from stepset.backends.kubernetes.api.permissions import Grant
        from stepset.backends.kubernetes.api.replies import RefusedError
        from stepset.backends.kubernetes.api.resources import WORKLOADS

        async with client_of(ClusterAccess.of(self)) as client:
            namespace = self.namespace or (await client.open()).namespace
            namespaced = NamespacedClient(client, namespace, Grant("airflow", (self.target,)))
            path = namespaced.one(WORKLOADS[self.target], self.run_name)
            try:
                found = await wait_for_object(client, path, self.poll_interval)
            except RefusedError as error:
                raise namespaced.with_remedy(error) from error
            self.workload = workload_reference(found, self.target)
        self.access = {**ClusterAccess.of(self).to_dict(), "namespace": namespace}
        return await super()._follow()


async def wait_for_object(client: Client, path: str, interval: float) -> Mapping[str, Any]:
    """Waits until an object exists, and returns it; sends a request every `interval` seconds.

    Tolerates temporary refusals, as watches do; raises InfrastructureError if the server refuses permanently.
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
        except UnreachableError:
            grace.unreachable()
        except InfrastructureError:
            if not grace.covers(asyncio.get_running_loop().time()):
                raise
        await asyncio.sleep(interval)
