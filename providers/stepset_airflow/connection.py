"""Which cluster a task talks to, with KubernetesPodOperator's meaning of every parameter.

Used by the operator in a worker and by the trigger in a triggerer, both by way of cncf.kubernetes' KubernetesHook, so
that what works in one works in the other. That hook and its clients take seconds to import: nothing here does before
it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.backends.kubernetes.client import Connection

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterAccess:
    """How to find the cluster; no credentials.

    Args:
        kubernetes_conn_id: Airflow's connection.
        namespace: where runs are; default: the connection's, that of the pod this runs in, `default`.
        in_cluster: use the service account of the pod this runs in.
        cluster_context: of the kubeconfig.
        config_file: the kubeconfig.
    """

    kubernetes_conn_id: str | None = "kubernetes_default"
    namespace: str | None = None
    in_cluster: bool | None = None
    cluster_context: str | None = None
    config_file: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def connect(access: ClusterAccess, extras: Mapping[str, Any] | None = None) -> Connection:
    """The connection to a cluster; reads the kubeconfig, sends nothing.

    Args:
        access: which.
        extras: of Airflow's connection, where they are known already.

    Raises:
        BadInputError: there is no such connection, or its configuration cannot be used.
    """
    from stepset.backends.kubernetes.client import Connection

    api, namespace = _opened(access, extras)
    return Connection(api, namespace, renew=lambda: _opened(access, extras)[0])


def _opened(access: ClusterAccess, extras: Mapping[str, Any] | None) -> tuple[Any, str]:
    """A client of the kubernetes package, and the namespace; raises as `connect`."""
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from airflow.sdk.exceptions import AirflowException
    from kubernetes import client, config

    from stepset.errors import BadInputError

    # Our own, so that nothing global is changed: a triggerer talks to several clusters.
    configuration = client.Configuration()
    configuration.retries = False
    hook = KubernetesHook(
        conn_id=access.kubernetes_conn_id,
        in_cluster=access.in_cluster,
        cluster_context=access.cluster_context,
        config_file=access.config_file,
        client_configuration=configuration,
    )
    if extras is not None:
        hook.__dict__["conn_extras"] = dict(extras)
    try:
        known = hook.conn_extras
        from_connection = known.get("in_cluster", known.get("extra__kubernetes__in_cluster"))
        if access.in_cluster or (access.in_cluster is None and from_connection):
            # The hook leaves the configuration that it was given out here.
            config.load_incluster_config(client_configuration=configuration)
        api = hook.get_conn()
        namespace = access.namespace or hook.get_namespace()
    except (AirflowException, config.ConfigException, OSError, ValueError) as error:
        raise BadInputError(
            f"kubernetes_conn_id: connection {access.kubernetes_conn_id!r} cannot be used: {error}; check its extras,"
            " in_cluster, cluster_context and config_file"
        ) from error
    if not namespace:
        namespace = _OWN_NAMESPACE.read_text().strip() if hook.is_in_cluster and _OWN_NAMESPACE.exists() else "default"
    return api, namespace
