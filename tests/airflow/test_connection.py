"""The cluster of a task, from Airflow's connection and the operator's parameters, as in KubernetesPodOperator.

Worker and triggerer use the same function. No test sends a request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset.backends.kubernetes.api.config import ClientConfig
from stepset.backends.kubernetes.api.connection import Connection
from stepset.errors import BadInputError
from stepset_airflow.hooks.cluster import ClusterAccess, client_of, connect

pytestmark = pytest.mark.airflow

Extras = Callable[..., None]


def kubeconfig(*contexts: str) -> dict[str, Any]:
    """A kubeconfig with a cluster, a user and a namespace for each context; the first context is current."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0],
        "contexts": [
            {"name": each, "context": {"cluster": each, "user": each, "namespace": f"ns-{each}"}} for each in contexts
        ],
        "clusters": [{"name": each, "cluster": {"server": f"https://{each}.example:6443"}} for each in contexts],
        "users": [{"name": each, "user": {"token": f"token-of-{each}"}} for each in contexts],
    }


@pytest.fixture
def extras(monkeypatch: pytest.MonkeyPatch) -> Extras:
    """`extras(namespace=...)`: sets the extras of the connection kubernetes_default."""

    def give(**extra: Any) -> None:
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)

    return give


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig("a", "b")))
    return str(file)


def found(**parameters: Any) -> tuple[str, str, str]:
    """Server, namespace and token."""
    with connect(ClusterAccess(**parameters)) as connection:
        return seen(connection)


def seen(connection: Connection) -> tuple[str, str, str]:
    assert connection.server == connection.client.server
    return of(connection.call(connection.client.open))


def of(config: ClientConfig) -> tuple[str, str, str]:
    return config.server, str(config.namespace), config.headers()["authorization"].removeprefix("Bearer ")


def test_the_connection_may_have_the_path_of_a_kubeconfig(extras: Extras, path: str) -> None:
    extras(kube_config_path=path)
    assert found() == ("https://a.example:6443", "default", "token-of-a")


def test_the_connection_may_contain_a_kubeconfig(extras: Extras) -> None:
    extras(kube_config=json.dumps(kubeconfig("c")), namespace="ml")
    assert found() == ("https://c.example:6443", "ml", "token-of-c")


def test_the_task_s_context_overrides_the_connection_s(extras: Extras, path: str) -> None:
    extras(kube_config_path=path, cluster_context="b")
    assert found()[2] == "token-of-b"
    assert found(cluster_context="a")[2] == "token-of-a"


def test_the_task_may_have_the_path_of_a_kubeconfig(extras: Extras, path: str) -> None:
    extras(namespace="ml")
    assert found(config_file=path) == ("https://a.example:6443", "ml", "token-of-a")


def test_the_task_s_namespace_overrides_the_connection_s(extras: Extras, path: str) -> None:
    extras(kube_config_path=path, namespace="ml")
    assert found(namespace="mine")[1] == "mine"


def test_connections_to_two_clusters_in_one_process_are_independent(extras: Extras, path: str) -> None:
    extras(kube_config_path=path)
    with connect(ClusterAccess(cluster_context="a")) as one, connect(ClusterAccess(cluster_context="b")) as other:
        assert (seen(one)[2], seen(other)[2]) == ("token-of-a", "token-of-b")


@pytest.mark.parametrize(
    ("extra", "parameters", "problem"),
    [
        pytest.param({"kube_config_path": "/no/such/file"}, {}, "No configuration found", id="no such file"),
        pytest.param({}, {"in_cluster": True}, "Service host/port is not set", id="not in a pod"),
        pytest.param({}, {"kubernetes_conn_id": "not_defined"}, "not_defined", id="no such connection"),
    ],
)
def test_an_unusable_connection_is_reported_in_one_line_that_names_it(
    extras: Extras, extra: dict[str, Any], parameters: dict[str, Any], problem: str
) -> None:
    extras(**extra)
    with pytest.raises(BadInputError) as caught:
        found(**parameters)
    assert problem in str(caught.value)
    assert "kubernetes_conn_id: connection" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("parameters", [{}, {"cluster_context": "b"}, {"namespace": "mine"}])
def test_the_triggerer_finds_the_same_cluster(
    extras: Extras, path: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extras(kube_config_path=path, namespace="ml")

    async def in_a_loop() -> tuple[str, str, str]:
        async with client_of(ClusterAccess(**parameters)) as client:
            return of(await client.open())

    assert asyncio.run(in_a_loop()) == found(**parameters)
