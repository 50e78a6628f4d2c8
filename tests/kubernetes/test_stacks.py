"""`stepset stacks` on a cluster: the pods and commands, and the output of a command within limits."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration

from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.pod_command import PodCommand, read_from_pod
from stepset.backends.kubernetes.logs.pods import log_pod
from stepset.backends.kubernetes.pod_stacks import PodsToRead, pods_to_read
from stepset.backends.stack_reading import MOST_AT_ONCE, PodStacks, read_stacks, running_ranks
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import Phase, RankStatus, RunStatus
from stepset.watch.stacks.document import MAX_BYTES
from tests.kubernetes.exec_server import ExecServer
from tests.stacks import document, waiting

GRANT = Grant("cli", ("jobset",))


def _row(rank: int, pod: str, state: str = "Running") -> RankStatus:
    return RankStatus(f"rank {rank}", rank, pod, f"machine-{pod}", state)


def _run(*rows: RankStatus, phase: Phase = Phase.RUNNING) -> RunStatus:
    return RunStatus("digits-1", "digits", "kubernetes", phase, ranks=rows, world_size=len(rows))


RUN = _run(_row(0, "a"), _row(1, "a"), _row(2, "b"), _row(3, "b", "Succeeded"), _row(4, "c"))


async def _read(server: ExecServer, command: list[str], seconds: float = 20, limit: int = MAX_BYTES) -> bytes:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    config = ClientConfig(configuration, Namespace("ml"))
    target = PodCommand("ml", "p", "node", command, GRANT)
    return await asyncio.to_thread(read_from_pod, config, target, seconds, limit)


@pytest.mark.anyio
async def test_the_output_of_a_command_is_returned_and_its_input_is_closed() -> None:
    async with ExecServer() as server:
        assert await _read(server, ["sh", "-c", "echo problem >&2; printf 'a\\377b'"]) == b"a\xffb"
    query = dict(server.queries[0])
    assert (query["stdin"].lower(), query["tty"].lower()) == ("false", "false")


@pytest.mark.anyio
async def test_a_command_that_fails_is_one_line_with_its_last_line() -> None:
    async with ExecServer() as server:
        with pytest.raises(InfrastructureError, match=r"^pod p: no such directory: /stepset/run$"):
            await _read(server, ["sh", "-c", "echo usage >&2; echo no such directory: /stepset/run >&2; exit 1"])
        with pytest.raises(InfrastructureError, match=r"^pod p: the command exited with code 3$"):
            await _read(server, ["sh", "-c", "exit 3"])


@pytest.mark.anyio
async def test_a_command_that_does_not_exit_ends_the_connection_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    async with ExecServer() as server:
        end = tmp_path / "end"
        wait = f"echo begun; while [ ! -e {end} ]; do sleep 0.1; done"
        with pytest.raises(InfrastructureError, match=r"^pod p: the command did not exit within 1 s$"):
            await _read(server, ["sh", "-c", wait], seconds=1)
        end.touch()
    assert time.monotonic() - began < 10


@pytest.mark.anyio
async def test_a_command_that_prints_without_end_is_cut_off() -> None:
    async with ExecServer() as server:
        found = await _read(server, ["sh", "-c", "head -c 3000000 /dev/zero"], limit=100_000)
    assert len(found) == 100_001


def _pod(name: str, *, agent: bool = True, running: bool = True) -> dict[str, Any]:
    words = ["python3", "/stepset/agent/agent.py", "run"] if agent else ["torchrun"]
    state = {"running": {"startedAt": "2026-11-29T12:00:00Z"}} if running else {"terminated": {"exitCode": 0}}
    return {
        "metadata": {"name": name, "uid": name, "namespace": "ml", "labels": {}},
        "spec": {"containers": [{"name": "node", "command": words}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "node", "state": state}]},
    }


def _to_read(*pods: dict[str, Any], sources: frozenset[str] | None = None) -> PodsToRead:
    namespaced = NamespacedClient(None, "ml", GRANT)  # type: ignore[arg-type]  # no request is sent
    return pods_to_read(namespaced, RUN, [log_pod(pod) for pod in pods], sources)


def test_the_agent_is_started_once_in_each_pod_of_the_ranks() -> None:
    found = _to_read(_pod("a"), _pod("b"), _pod("c", agent=False))
    first, second, third = found.pods
    assert first.command is not None
    assert second.command is not None
    stacks = ["python3", "-I", "-S", "/stepset/agent/agent.py", "stacks", "--dir", "/stepset/run"]
    assert first.command.command == [*stacks, "--rank", "0", "--rank", "1"]
    assert second.command.command == [*stacks, "--rank", "2"]
    assert (first.command.container, first.command.grant.exec) == ("node", True)
    assert third.command is None
    assert (found.run, found.problems) == ("digits-1", ["rank 3 is not running: Succeeded"])


def test_a_pod_that_has_ended_is_one_line() -> None:
    found = _to_read(_pod("a", running=False), _pod("b"))
    assert [pod.pod for pod in found.pods] == ["b"]
    assert found.problems[1:] == ["pod a: is not running any more", "pod c: is not running any more"]


def test_only_the_pods_of_the_selected_ranks_are_read() -> None:
    (only,) = _to_read(_pod("a"), _pod("b"), sources=frozenset({"rank 1"})).pods
    assert (only.pod, [row.rank for row in only.rows]) == ("a", [1])


@pytest.mark.parametrize(
    ("run", "sources", "message"),
    [
        (RUN.with_(phase=Phase.FAILED), None, "run digits-1 is over: Failed; only running ranks have stacks"),
        (RUN, frozenset({"launcher"}), "'launcher' is not a rank"),
        (RUN, frozenset({"rank 3"}), "run digits-1: rank 3 is not running: Succeeded"),
        (RUN, frozenset({"rank 9"}), "run digits-1: rank 9 has not started yet"),
        (_run(phase=Phase.PENDING), None, "run digits-1: no rank has started yet: Pending"),
    ],
)
def test_without_a_running_rank_the_reason_is_stated(
    run: RunStatus, sources: frozenset[str] | None, message: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        running_ranks(run, sources)
    assert str(caught.value).startswith(message)


def _pods(reads: dict[str, Any]) -> list[PodStacks]:
    rows = running_ranks(RUN, None)[0]
    return [PodStacks(pod, rows[pod], read) for pod, read in reads.items()]


def _fails() -> bytes:
    raise InfrastructureError("pod b: refused")


def test_a_pod_that_fails_does_not_hide_the_others() -> None:
    reads = {"a": lambda: document(waiting(0), waiting(1)), "b": _fails, "c": lambda: b"no JSON"}
    found = read_stacks("digits-1", _pods(reads), ["rank 3 is not running: Succeeded"])
    assert [(rank.rank, rank.pod, rank.node) for rank in found.ranks] == [(0, "a", "machine-a"), (1, "a", "machine-a")]
    assert found.problems[0] == "rank 3 is not running: Succeeded"
    assert sorted(line[:7] for line in found.problems[1:]) == ["pod b: ", "pod c: "]


def test_a_pod_cannot_state_the_stacks_of_another_pod() -> None:
    found = read_stacks("digits-1", _pods({"a": lambda: document(waiting(0), {"rank": 2, "why": "forged"})}))
    assert [(rank.rank, rank.why) for rank in found.ranks] == [(0, ""), (1, "the agent of its pod did not find it")]


def test_if_every_pod_fails_the_error_has_the_first_reason() -> None:
    with pytest.raises(InfrastructureError, match=r"^pod b: refused; 1 more pods have failed$"):
        read_stacks("digits-1", _pods({"b": _fails, "c": _fails}))


def test_if_no_pod_is_left_the_error_states_why() -> None:
    with pytest.raises(InfrastructureError, match=r"^pod a: is not running any more$"):
        read_stacks("digits-1", [], ["pod a: is not running any more"])


def test_64_pods_are_read_at_the_same_time() -> None:
    """Each pod needs a second, as the two samples of an agent do."""

    def slow(rank: int) -> bytes:
        time.sleep(1)
        return document(waiting(rank))

    pods = [PodStacks(f"p{n}", [_row(n, f"p{n}")], partial(slow, n)) for n in range(MOST_AT_ONCE)]
    began = time.monotonic()
    assert len(read_stacks("digits-1", pods).ranks) == 64
    assert time.monotonic() - began < 8
