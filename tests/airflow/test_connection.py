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
from stepset.backends.kubernetes.api.portal import Connection
from stepset.errors import BadInputError
from stepset_airflow.hooks.cluster import ClusterAccess, client_of, connect
from stepset_airflow.hooks.distributed_train import DistributedTrainHook
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import run_again

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


def test_an_unusable_connection_is_reported_after_the_reason_of_the_try(
    write_dag: WriteDag, run_dag: RunDag, extras: Extras
) -> None:
    extras(kube_config_path="/no/such/kubeconfig")
    path = write_dag("DistributedTrainOperator(task_id='train', image='train:1', framework='plain', function='pass')")
    cleared = run_again(path, run_dag(path), clear=True)
    assert "this try starts a new training, because the task was cleared" in cleared.lines, cleared.explained()
    assert "connection 'kubernetes_default': no such file: /no/such/kubeconfig" in str(cleared.error)
    assert cleared.error.__suppress_context__, "the log would show the tracebacks of errors that add nothing"


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
        pytest.param(
            {"kube_config_path": "/no/such/file"},
            {},
            "kubernetes_conn_id: kube_config_path of connection 'kubernetes_default': no such file: /no/such/file",
            id="no such file",
        ),
        pytest.param(
            {},
            {"kubernetes_conn_id": None, "config_file": "/no/such/file"},
            "config_file: no such file: /no/such/file; give the path of a kubeconfig on the machine of this process",
            id="no such config_file",
        ),
        pytest.param(
            {},
            {"kubernetes_conn_id": None, "in_cluster": True},
            "in_cluster: this process does not run in a pod: Service host/port is not set; leave in_cluster out, or",
            id="not in a pod",
        ),
        pytest.param(
            {},
            {"kubernetes_conn_id": "not_defined"},
            "kubernetes_conn_id: connection 'not_defined' does not exist; create it: airflow connections add"
            ' not_defined --conn-type kubernetes --conn-extra \'{"kube_config_path": ',
            id="no such connection",
        ),
        pytest.param(
            {},
            {"kubernetes_conn_id": None},
            "kubernetes_conn_id: no cluster is configured: Invalid kube-config file. No configuration found; create a"
            " connection: airflow connections add kubernetes_default --conn-type kubernetes",
            id="no connection at all",
        ),
        pytest.param(
            {"kube_config": "{}"},
            {},
            "kubernetes_conn_id: connection 'kubernetes_default' cannot be used: ",
            id="empty",
        ),
    ],
)
def test_an_unusable_connection_is_reported_in_one_line_that_names_what_to_correct(
    extras: Extras, extra: dict[str, Any], parameters: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", "/no/such/default")
    extras(**extra)
    with pytest.raises(BadInputError) as caught:
        found(**parameters)
    assert str(caught.value).startswith(problem)
    assert ('backend="local"' in str(caught.value)) is ("no cluster is configured" in problem)
    assert len(str(caught.value).splitlines()) == 1


def test_an_error_in_a_pod_does_not_state_that_the_process_does_not_run_in_a_pod(
    extras: Extras, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("token", "cert"):
        (tmp_path / name).write_text(name)
        monkeypatch.setattr(f"kubernetes.config.incluster_config.SERVICE_{name.upper()}_FILENAME", tmp_path / name)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    extras(kube_config_path=path)
    with pytest.raises(BadInputError) as caught:
        found(in_cluster=True)
    assert str(caught.value).startswith(
        "kubernetes_conn_id: connection 'kubernetes_default' cannot be used: Invalid connection configuration"
    )


@pytest.mark.parametrize("kind", ["path", "text", "object", "parameter", "default"])
def test_a_user_that_impersonates_another_one_is_an_error(
    extras: Extras, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The kubernetes package ignores the field; requests would have the permissions of the token."""
    config, file = kubeconfig("a", "b"), tmp_path / "impersonating"
    config["users"][1]["user"]["as"] = "jane"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    given = {"path": {"kube_config_path": str(file)}, "text": {"kube_config": json.dumps(config)}}
    extras(**given.get(kind, {"kube_config": config} if kind == "object" else {}))
    parameters: dict[str, Any] = {"config_file": str(file)} if kind == "parameter" else {}
    assert found(**parameters, cluster_context="a")[2] == "token-of-a"
    with pytest.raises(BadInputError, match=r"context 'b': user 'b' has the field 'as', which stepset does not"):
        found(**parameters, cluster_context="b")
    with pytest.raises(BadInputError, match=r"context 'b': user 'b' has the field 'as', which stepset does not"):
        asyncio.run(client_of(ClusterAccess(**parameters, cluster_context="b")).open())


@pytest.mark.parametrize("parameters", [{}, {"cluster_context": "b"}, {"namespace": "mine"}])
def test_the_triggerer_finds_the_same_cluster(
    extras: Extras, path: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extras(kube_config_path=path, namespace="ml")

    async def in_a_loop() -> tuple[str, str, str]:
        async with client_of(ClusterAccess(**parameters)) as client:
            return of(await client.open())

    assert asyncio.run(in_a_loop()) == found(**parameters)


def test_the_hook_for_stacks_uses_the_connection_and_checks_the_ranks_first() -> None:
    hook = DistributedTrainHook(kubernetes_conn_id="none")
    with pytest.raises(BadInputError, match=r"^kubernetes_conn_id: connection 'none' does not exist"):
        hook.stacks("digits-1")
    with pytest.raises(BadInputError, match=r"^ranks: '2-x' is neither a rank nor a range"):
        hook.stacks("digits-1", ranks="2-x")
