"""Connects a task to the cluster that KubernetesPodOperator's parameters select.

Workers and triggerers both use cncf.kubernetes' KubernetesHook, so that a connection works in both. The hook and its
clients take seconds to import, so functions import them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import set_connection_extras

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.client import Client
    from stepset.backends.kubernetes.api.config import ClientConfig
    from stepset.backends.kubernetes.api.connection import Connection

TEMPLATED = ("kubernetes_conn_id", "namespace", "cluster_context", "config_file")
"""Fields of ClusterAccess that are templated fields of operators and sensors."""

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterAccess:
    """KubernetesPodOperator's parameters that select the cluster; they contain no credentials.

    `namespace` is the runs' namespace; default: that of the connection, else of this process's pod, else `default`.
    """

    kubernetes_conn_id: str | None = "kubernetes_default"
    namespace: str | None = None
    in_cluster: bool | None = None
    cluster_context: str | None = None
    config_file: str | None = None

    @classmethod
    def of(cls, task: object) -> ClusterAccess:
        """Returns the access that an operator, sensor or trigger describes in attributes of the same names."""
        return cls(**{field.name: getattr(task, field.name) for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def connect(access: ClusterAccess) -> Connection:
    """Returns a connection to a cluster without sending a request.

    Its requests raise BadInputError if the configuration cannot be used.
    """
    from stepset.backends.kubernetes.api.connection import Connection

    return Connection(lambda: _load(access))


def client_of(access: ClusterAccess) -> Client:
    """Returns a client for an event loop; the client reads Airflow's connection without blocking the loop."""
    from stepset.backends.kubernetes.api.client import Client

    async def load() -> ClientConfig:
        extras = await _extras_of(access.kubernetes_conn_id)
        return await asyncio.to_thread(_load, access, extras)

    return Client(load)


async def _extras_of(conn_id: str | None) -> dict[str, Any]:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    from stepset.errors import BadInputError

    if conn_id is None:
        return {}
    try:
        connection = await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        if conn_id == "kubernetes_default":  # as KubernetesHook does
            return {}
        raise BadInputError(f"kubernetes_conn_id: connection {conn_id!r} does not exist; create it") from error
    return await connection.aextra_dejson()


def _load(access: ClusterAccess, extras: Mapping[str, Any] | None = None) -> ClientConfig:
    """Reads the configuration; `extras` are the extras of Airflow's connection, which the hook reads if None.

    Raises BadInputError if the configuration cannot be used.
    """
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from airflow.sdk.exceptions import AirflowException
    from kubernetes import client, config

    from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
    from stepset.errors import BadInputError

    # Not the global configuration: a triggerer connects to several clusters.
    configuration = client.Configuration()
    hook = KubernetesHook(
        conn_id=access.kubernetes_conn_id,
        in_cluster=access.in_cluster,
        cluster_context=access.cluster_context,
        config_file=access.config_file,
        client_configuration=configuration,
    )
    if extras is not None:
        set_connection_extras(hook, extras)
    try:
        known = hook.conn_extras
        from_connection = known.get("in_cluster", known.get("extra__kubernetes__in_cluster"))
        if access.in_cluster or (access.in_cluster is None and from_connection):
            # The hook ignores `client_configuration` in a cluster.
            config.load_incluster_config(client_configuration=configuration)
        api = hook.get_conn()
        namespace = access.namespace or hook.get_namespace()
    except (
        AirflowException,
        config.ConfigException,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
    ) as error:
        raise BadInputError(
            f"kubernetes_conn_id: connection {access.kubernetes_conn_id!r} cannot be used: {error}; check its extras,"
            " in_cluster, cluster_context and config_file"
        ) from error
    if not namespace:
        namespace = _OWN_NAMESPACE.read_text().strip() if hook.is_in_cluster and _OWN_NAMESPACE.exists() else "default"
    return ClientConfig(api.configuration, Namespace(namespace))
