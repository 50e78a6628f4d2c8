"""Which cluster a task talks to: Airflow's connection and the operator's parameters, as KubernetesPodOperator has them.

Worker and triggerer find it by the same function; nothing is sent.
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
    """A cluster, a user and a namespace for each context, the first of them current."""
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
    """`extras(namespace=...)`: what the connection kubernetes_default holds."""

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


def test_a_path_in_the_connection(extras: Extras, path: str) -> None:
    extras(kube_config_path=path)
    assert found() == ("https://a.example:6443", "default", "token-of-a")


def test_a_kubeconfig_in_the_connection(extras: Extras) -> None:
    extras(kube_config=json.dumps(kubeconfig("c")), namespace="ml")
    assert found() == ("https://c.example:6443", "ml", "token-of-c")


def test_a_context_in_the_connection_or_in_the_task(extras: Extras, path: str) -> None:
    extras(kube_config_path=path, cluster_context="b")
    assert found()[2] == "token-of-b"
    assert found(cluster_context="a")[2] == "token-of-a"


def test_a_file_of_the_task_s(extras: Extras, path: str) -> None:
    extras(namespace="ml")
    assert found(config_file=path) == ("https://a.example:6443", "ml", "token-of-a")


def test_the_task_s_namespace_counts_before_the_connection_s(extras: Extras, path: str) -> None:
    extras(kube_config_path=path, namespace="ml")
    assert found(namespace="mine")[1] == "mine"


def test_two_clusters_in_one_process_do_not_get_in_each_other_s_way(extras: Extras, path: str) -> None:
    extras(kube_config_path=path)
    with connect(ClusterAccess(cluster_context="a")) as one, connect(ClusterAccess(cluster_context="b")) as other:
        assert (seen(one)[2], seen(other)[2]) == ("token-of-a", "token-of-b")


@pytest.mark.parametrize(
    ("extra", "parameters", "problem"),
    [
        pytest.param({"kube_config_path": "/no/such/file"}, {}, "No configuration found", id="no such file"),
        pytest.param({}, {"in_cluster": True}, "Service host/port is not set", id="not in a pod"),
        pytest.param({}, {"kubernetes_conn_id": "nobody_made_it"}, "nobody_made_it", id="no such connection"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line_that_names_the_connection(
    extras: Extras, extra: dict[str, Any], parameters: dict[str, Any], problem: str
) -> None:
    extras(**extra)
    with pytest.raises(BadInputError) as told:
        found(**parameters)
    assert problem in str(told.value)
    assert "kubernetes_conn_id: connection" in str(told.value)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("parameters", [{}, {"cluster_context": "b"}, {"namespace": "mine"}])
def test_the_triggerer_finds_the_same(
    extras: Extras, path: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extras(kube_config_path=path, namespace="ml")

    async def in_a_loop() -> tuple[str, str, str]:
        async with client_of(ClusterAccess(**parameters)) as client:
            return of(await client.open())

    assert asyncio.run(in_a_loop()) == found(**parameters)
