"""The backends of a task's runs, which are created from the records of the runs and do not depend on the job.

The backends apply the `pod_mutation_hook` of the Airflow deployment to the pod templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import call_pod_mutation_hook, pod_of
from stepset_airflow.hooks.cluster import ClusterAccess, connect

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


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a pod template (metadata and spec) with the changes of the deployment's `pod_mutation_hook`.

    Airflow calls this hook for every pod that Airflow creates, but the controllers of the cluster create the pods of a
    run. Therefore stepset calls the hook for each pod template before the run is submitted. The hook receives the
    template as a V1Pod without a name.

    If the hook changes nothing, the function returns the same object. A changed template contains only fields that the
    installed kubernetes package supports.

    If the hook raises an exception to reject the pod, the function raises this exception.
    """
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = pod_of({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    call_pod_mutation_hook(pod)
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
