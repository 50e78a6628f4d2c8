"""The account of `stepset rbac` cannot read Secrets, and no run uses a Secret or code that another account planted."""

from __future__ import annotations

import pytest

from stepset.backends.kubernetes.api.portal import connect
from stepset.errors import BadInputError
from stepset.targets.metadata import RUN
from stepset.targets.names import AGENT_KEY
from tests.cluster.runs import Runs

pytestmark = pytest.mark.cluster

MPI = {"framework": "mpi", "num_nodes": 2, "procs_per_node": 1}


def create(runs: Runs, kind: str, name: str, **fields: object) -> None:
    """Creates an object with the labels of the run, as another account."""
    about = {"name": name, "labels": {RUN: "run"}}
    runs.cluster.objects.create({"apiVersion": "v1", "kind": kind, "metadata": about, **fields}, runs.namespace)


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_the_account_cannot_read_a_secret_even_with_an_empty_patch(runs: Runs, verb: str) -> None:
    """The response to a PATCH contains the Secret. kubectl is not used, because it gets an object before its PATCH."""
    create(runs, "Secret", "tokens", stringData={"token": "hunter2"})
    path = f"/api/v1/namespaces/{runs.namespace}/secrets/tokens"
    with connect(str(runs.kubeconfig)) as connection:
        reply = connection.get(path) if verb == "get" else connection.patch(path, {})
    assert (reply.status, "data" in reply.body) == (403, False)
    assert f'cannot {verb} resource "secrets"' in reply.message


def test_a_planted_secret_is_not_used_for_the_ssh_keys_of_a_run(runs: Runs) -> None:
    create(runs, "Secret", "run-mpi-ssh-auth", stringData={"ssh-privatekey": "known to its creator"})
    with pytest.raises(BadInputError, match=r"^name: Secret run-mpi-ssh-auth exists, and the run would use its keys"):
        runs.backend().submit(runs.request("pass", **MPI))
    runs.cluster.wait("no run", lambda: not runs.get("jobsets,pods")["items"])
    assert runs.get("secret/run-mpi-ssh-auth")["metadata"]["labels"] == {RUN: "run"}


def test_a_planted_config_map_is_not_executed(runs: Runs) -> None:
    """It has the name and the label of the ConfigMap with the agent."""
    create(runs, "ConfigMap", "run-agent", data={AGENT_KEY: "print('FORGED')"})
    with pytest.raises(BadInputError, match=r"^name: ConfigMap run-agent exists, and a pod"):
        runs.backend().submit(runs.request("print('ours')"))
    runs.cluster.wait("no run", lambda: not runs.get("jobsets,pods")["items"])
