"""Connects a task to a cluster. The parameters that select the cluster have the names that KubernetesPodOperator uses.

In workers and in triggerers, this module uses the KubernetesHook of the provider cncf.kubernetes. Therefore a
connection that works in a worker also works in a triggerer. The hook is imported inside functions, because the import
takes seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import set_connection_extras

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.client import Client
    from stepset.backends.kubernetes.api.config import ClientConfig
    from stepset.backends.kubernetes.api.portal import Connection

TEMPLATED = ("kubernetes_conn_id", "namespace", "cluster_context", "config_file")
"""The fields of ClusterAccess that Airflow renders as templates in operators and sensors."""

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterAccess:
    """The parameters that select the cluster. KubernetesPodOperator uses the same names and values.

    The parameters contain no credentials.

    `namespace` is the namespace of the runs. If `namespace` is None, the namespace of the connection is used. If the
    connection has no namespace either, the default depends on the kind of connection. For an in-cluster connection, the
    default is the namespace of the pod in which this process runs. For every other connection, the default is
    `default`.
    """

    kubernetes_conn_id: str | None = "kubernetes_default"
    namespace: str | None = None
    in_cluster: bool | None = None
    cluster_context: str | None = None
    config_file: str | None = None

    @classmethod
    def of(cls, task: object) -> ClusterAccess:
        """Creates a ClusterAccess from the attributes of an operator, a sensor or a trigger.

        For each field of ClusterAccess, `task` must have an attribute with the same name.
        """
        return cls(**{field.name: getattr(task, field.name) for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def connect(access: ClusterAccess) -> Connection:
    """Returns a connection to a cluster. This function sends no request to the cluster.

    If the configuration of the cluster is invalid, each request through the connection raises BadInputError.
    """
    from stepset.backends.kubernetes.api.portal import Connection

    return Connection(lambda: _load(access))


def client_of(access: ClusterAccess) -> Client:
    """Returns a client for an event loop. The client reads Airflow's connection without blocking the event loop."""
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
    except AirflowNotFoundException:
        if conn_id == "kubernetes_default":  # KubernetesHook also works without this connection
            return {}
        raise BadInputError(_missing(conn_id)) from None
    return await connection.aextra_dejson()


def _load(access: ClusterAccess, extras: Mapping[str, Any] | None = None) -> ClientConfig:
    """Returns the configuration of the client for a cluster.

    `extras` are the extras of Airflow's connection. If `extras` is None, the hook queries Airflow for the extras.

    Raises BadInputError if the configuration is invalid.
    """
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
    from kubernetes import client, config

    from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
    from stepset.backends.kubernetes.api.kubeconfig import plugin_failed
    from stepset.backends.kubernetes.api.plugins import limit_plugins, logged_errors
    from stepset.errors import BadInputError

    # The client's global configuration is not changed, because a triggerer may connect to several clusters.
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
    known: Mapping[str, Any] = {}
    try:
        known = hook.conn_extras
        if access.in_cluster or (access.in_cluster is None and _extra(known, "in_cluster")):
            # With in-cluster credentials, the hook ignores `client_configuration`.
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException as error:
                if access.in_cluster:
                    raise BadInputError(_not_in_a_pod(str(error).rstrip("."))) from error
                raise
        else:
            _check_kubeconfig(access, known, default=False)
        limit_plugins()
        with logged_errors() as errors:
            api = hook.get_conn()
        if errors and not api.configuration.api_key and not api.configuration.cert_file:
            raise plugin_failed(str(api.configuration.host), errors[-1])
        if not hook.is_in_cluster:
            _check_kubeconfig(access, known, default=True)
        namespace = access.namespace or hook.get_namespace()
    except AirflowNotFoundException:
        raise BadInputError(_missing(str(access.kubernetes_conn_id))) from None
    except (
        AirflowException,
        config.ConfigException,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
    ) as error:
        raise BadInputError(_problem(access, known, str(error).rstrip("."))) from error
    if not namespace:
        namespace = _OWN_NAMESPACE.read_text().strip() if hook.is_in_cluster and _OWN_NAMESPACE.exists() else "default"
    return ClientConfig(api.configuration, Namespace(namespace))


def _missing(conn_id: str) -> str:
    """Returns the message about a connection that does not exist."""
    return f"kubernetes_conn_id: connection {conn_id!r} does not exist; create it: {_create(conn_id)}"


def _not_in_a_pod(error: str) -> str:
    """Returns the message about the parameter in_cluster outside of a pod."""
    return (
        f"in_cluster: this process does not run in a pod: {error}; leave in_cluster out, or set it to False, and"
        " give kubernetes_conn_id or config_file"
    )


def _create(conn_id: str) -> str:
    extras = '{"kube_config_path": "/path/of/the/kubeconfig", "namespace": "training"}'
    return f"airflow connections add {conn_id} --conn-type kubernetes --conn-extra '{extras}'"


def _problem(access: ClusterAccess, extras: Mapping[str, Any], error: str) -> str:
    """Returns the message about a cluster that is not configured. The message names the parameter to correct.

    `extras` are the extras of Airflow's connection. Empty if the connection does not exist.
    """
    parameter, path = "config_file", access.config_file
    if path is None:
        where = f"connection {access.kubernetes_conn_id!r}"
        parameter, path = f"kubernetes_conn_id: kube_config_path of {where}", _extra(extras, "kube_config_path")
    if path is not None and not any(map(_exists, str(path).split(os.pathsep))):
        return f"{parameter}: no such file: {path}; give the path of a kubeconfig on the machine of this process"
    if path is None and not extras and not access.in_cluster:
        conn_id = access.kubernetes_conn_id or "kubernetes_default"
        return (
            f"kubernetes_conn_id: no cluster is configured: {error}; create a connection: {_create(conn_id)}; or give"
            ' config_file; to run in the worker instead of on a cluster, set backend="local"'
        )
    return (
        f"kubernetes_conn_id: connection {access.kubernetes_conn_id!r} cannot be used: {error}; check its extras,"
        " in_cluster, cluster_context and config_file"
    )


def _exists(path: str) -> bool:
    return bool(path) and Path(path).expanduser().exists()


def _extra(extras: Mapping[str, Any], name: str) -> Any:
    return extras.get(name, extras.get(f"extra__kubernetes__{name}")) or None


def _check_kubeconfig(access: ClusterAccess, extras: Mapping[str, Any], *, default: bool) -> None:
    """Raises BadInputError if a kubeconfig impersonates a user, or if the kubeconfig or a file that it names is not
    valid.

    The client would ignore the impersonation, and would send requests as the user of the credentials. If the connection
    states no kubeconfig, checks the kubeconfig of the machine only if `default` is true.
    """
    import yaml
    from kubernetes.config import kube_config

    from stepset.backends.kubernetes.api.kubeconfig import check_files, check_impersonation, read_kubeconfig
    from stepset.spec.yamlfile import check_limits

    def given(parameter: str | None, name: str) -> Any:
        return _extra(extras, name) if parameter is None else parameter

    path, text = given(access.config_file, "kube_config_path"), _extra(extras, "kube_config")
    if path is None and text is not None:
        if isinstance(text, str):
            try:
                check_limits(text)
                text = yaml.safe_load(text)
            except yaml.YAMLError:  # the message of the error may contain credentials
                raise ValueError("kube_config is not readable as YAML") from None
        contents = {f"of connection {access.kubernetes_conn_id!r}": text}
    elif path is not None or default:
        files = map(os.path.expanduser, str(path or kube_config.KUBE_CONFIG_DEFAULT_LOCATION).split(os.pathsep))
        contents = {each: read_kubeconfig(each) for each in files if each and Path(each).exists()}
    else:
        return
    context = given(access.cluster_context, "cluster_context")
    check_files(contents, context)
    if contents:
        check_impersonation(contents, context)
