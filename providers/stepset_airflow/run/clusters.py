"""The backends of a task's runs, which are created from the records of the runs and do not depend on the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset_airflow.hooks.cluster import ClusterAccess, connect
from stepset_airflow.run.pod_mutation import mutate_pod

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.connection import Connection
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset_airflow.run_record import FollowSettings, RunRecord


class Clusters:
    """Connects to the clusters of a task's runs. Each connection is opened once."""

    def __init__(self) -> None:
        self._connections: dict[ClusterAccess, Connection] = {}
        self._backends: dict[tuple[str, FollowSettings], KubernetesBackend] = {}

    def namespace(self, access: ClusterAccess) -> str:
        """Returns the namespace of new runs. Reads Airflow's connection, which may raise BadInputError."""
        return str(self._connection(access).namespace)

    def backend(self, record: RunRecord) -> KubernetesBackend:
        """Returns the backend for the run of a record."""
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.watch.cluster.follow_policy import Timeouts

        key = record.namespace, (follow := record.follow)
        if key not in self._backends:
            self._backends[key] = KubernetesBackend(
                self._connection(follow.access),
                namespace=record.namespace,
                target=follow.target,
                sources=None if follow.sources is None else frozenset(follow.sources),
                timeouts=Timeouts(follow.admission_timeout, follow.startup_timeout, quiet=follow.quiet_after),
                change_pod=mutate_pod,
                interface="airflow",
            )
        return self._backends[key]

    def _connection(self, access: ClusterAccess) -> Connection:
        if access not in self._connections:
            self._connections[access] = connect(access)
        return self._connections[access]
