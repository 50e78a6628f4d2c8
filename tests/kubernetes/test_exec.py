"""`stepset exec` on a cluster: the command, its environment, its streams, its exit code, and the permission."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.pod_command import PodCommand, exec_in_pod
from stepset.backends.kubernetes.pod_exec import pod_command
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import Phase, RankStatus, RunStatus
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.exec_server import ExecServer

RUN = RunStatus(
    "digits-1",
    "digits",
    "kubernetes",
    phase=Phase.RUNNING,
    ranks=(RankStatus("rank 2", 2, "digits-1-node-1-0", state="Running"),),
)


def _config(port: int) -> ClientConfig:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    return ClientConfig(configuration, Namespace("ml"))


@contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)


async def _exec(command: list[str], server: ExecServer) -> int:
    grant = Grant("cli", ("trainjob",), exec=True)
    return await asyncio.to_thread(exec_in_pod, _config(server.port), PodCommand("ml", "p", "node", command, grant))


@pytest.mark.anyio
async def test_the_command_gets_standard_input_and_its_end_and_its_exit_code_is_returned(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    async with ExecServer() as server:
        with _standard_input(b"\xff\x00 data"):
            assert await _exec(["sh", "-c", "cat; echo problem >&2; exit 7"], server) == 7
    assert capfdbinary.readouterr() == (b"\xff\x00 data", b"problem\n")
    query = dict(server.queries[0])
    assert (query["container"], query["tty"].lower()) == ("node", "false")


@pytest.mark.anyio
async def test_a_command_that_the_container_lacks_is_reported_with_the_reason() -> None:
    async with ExecServer() as server:
        reason = r'^pod p: the command was not started: .*"nope": executable file'
        with pytest.raises(InfrastructureError, match=reason):
            await _exec(["nope"], server)


@pytest.mark.anyio
async def test_a_refused_connection_is_one_line() -> None:
    async with ExecServer(500, "container\nnot found") as server:
        with pytest.raises(InfrastructureError, match=r"server \S+: failed with HTTP 500: container not found; "):
            await _exec(["true"], server)
    async with ExecServer(403, 'admission webhook "no-exec" denied the request') as server:
        with pytest.raises(
            InfrastructureError,
            match=r'^pod p: server \S+ does not start the command: admission webhook "no-exec" denied',
        ):
            await _exec(["true"], server)
    closed = server
    with pytest.raises(
        InfrastructureError, match=r"^pod p: server \S+ does not start the command: .*refused; check"
    ) as caught:
        await _exec(["true"], closed)
    assert "\n" not in str(caught.value)


@pytest.mark.anyio
async def test_the_refusal_of_a_proxy_states_the_option_of_kubectl_proxy() -> None:
    """The API server always sends a Status. `kubectl proxy` sends 403 with the text `Forbidden`."""
    async with ExecServer(403) as server:
        with pytest.raises(InfrastructureError, match=r"HTTP 403; a proxy .* --reject-paths='\^\$'"):
            await _exec(["true"], server)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("user", "words"),
    [("jane", "--user jane"), ("system:serviceaccount:team:trainer", "--account team/trainer")],
)
async def test_without_the_permission_one_line_has_the_command_that_grants_it(user: str, words: str) -> None:
    reason = (
        f'pods "p" is forbidden: User "{user}" cannot get resource "pods/exec" in API group "" in the namespace "ml"'
    )
    async with ExecServer(403, reason) as server:
        with pytest.raises(InfrastructureError) as caught:
            await _exec(["true"], server)
    assert str(caught.value) == (
        f"rbac: {reason}; have an administrator run: stepset rbac --namespace ml --target trainjob --with exec {words}"
        " | kubectl apply -f -"
    )


def _pod(agent: bool) -> dict[str, Any]:
    words = ["python3", "/stepset/agent/agent.py", "run"] if agent else ["torchrun"]
    return {
        "metadata": {"name": "digits-1-node-1-0", "uid": "u", "namespace": "ml", "labels": {}},
        "spec": {"containers": [{"name": "node", "command": words}]},
        "status": {"phase": "Running"},
    }


async def _prepared(command: list[str], *, agent: bool = True, run: RunStatus = RUN) -> PodCommand:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return 200, _pod(agent)

    async with ApiServer(answer) as server:
        config = _config(server.port)

        async def load() -> ClientConfig:
            return config

        async with Client(load, config) as client:
            namespaced = NamespacedClient(client, "ml", Grant("kfp", ("job",)))
            return await pod_command(namespaced, run, "rank 2", command)


@pytest.mark.anyio
async def test_the_command_is_started_in_the_pod_of_the_rank() -> None:
    made = await _prepared(["nvidia-smi", "-L"], agent=False)
    grant = Grant("kfp", ("job",), exec=True)
    assert made == PodCommand("ml", "digits-1-node-1-0", "node", ["nvidia-smi", "-L"], grant)


@pytest.mark.anyio
async def test_a_run_that_is_over_has_no_rank_for_a_command() -> None:
    with pytest.raises(BadInputError, match="run digits-1 is over: Failed"):
        await _prepared(["true"], run=RUN.with_(phase=Phase.FAILED))


@pytest.mark.anyio
@pytest.mark.parametrize("variable", ["RANK", "STEPSET_NODE_RANK"])  # the second for `framework: plain`
async def test_the_command_has_the_environment_and_the_directory_of_the_rank(tmp_path: Path, variable: str) -> None:
    made = await _prepared(["sh", "-c", "echo $OWN; pwd; exit 9"])
    # The number of a rank that no other process of this machine has.
    words = ["2718281" if word == "2" else word for word in made.command]
    env = {variable: "2718281", "OWN": "a b", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=env, cwd=tmp_path) as rank:
        try:
            done = subprocess.run(words, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, timeout=60)
        finally:
            rank.kill()
    assert (done.returncode, done.stdout, done.stderr) == (9, f"a b\n{tmp_path}\n", "")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "stepset: rank 2718281 has no process in this pod now\n")


@pytest.mark.anyio
async def test_a_rank_is_preferred_to_a_launcher_on_the_node_of_the_same_number(tmp_path: Path) -> None:
    made = await _prepared(["sh", "-c", "echo $OWN"])
    words = ["2718281" if word == "2" else word for word in made.command]
    launcher = {"STEPSET_NODE_RANK": "2718281", "OWN": "launcher"}
    rank = {"STEPSET_NODE_RANK": "0", "RANK": "2718281", "OWN": "rank"}
    started = [subprocess.Popen(["sleep", "60"], env=env) for env in (launcher, rank)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, timeout=60)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert done.stdout == "rank\n"
