"""In local runs an agent replaces sshd, and `rsh` replaces ssh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.launchers import MPIRUN
from tests.agent.pods import AGENT, Pod, Running
from tests.waiting import until

HOST = "127.70.1.2"


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    """The directory of the sockets, an argument of `rsh`."""
    return tmp_path / "sockets"


@pytest.fixture
def node(tmp_path: Path, sockets: Path) -> Iterator[Running]:
    """An agent that serves `rsh`."""
    (tmp_path / "node").mkdir()
    with serve(Pod(tmp_path / "node"), sockets) as running:
        running.wait_for_line(b'"ready"')
        yield running


def serve(pod: Pod, sockets: Path, **more: Any) -> Running:
    return pod.start(serve=str(sockets / HOST), env={"WHERE": "on the node"}, **more)


def rsh(sockets: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", str(AGENT), "rsh", str(sockets), *words]
    return subprocess.run(command, capture_output=True, timeout=30, **more)


def start_rsh(sockets: Path, line: str) -> subprocess.Popen[bytes]:
    """Starts an rsh without waiting for it."""
    command = [sys.executable, "-I", "-S", str(AGENT), "rsh", str(sockets), HOST, line]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_command_runs_with_the_callers_input_and_outputs(node: Running, sockets: Path) -> None:
    ended = rsh(sockets, HOST, "cat; echo to stderr >&2; exit 5", input=b"to stdin")
    assert (ended.returncode, ended.stdout, ended.stderr) == (5, b"to stdin", b"to stderr\n")


def test_the_arguments_are_one_line_for_a_shell_as_with_ssh(node: Running, sockets: Path) -> None:
    options = ["-x", "-o", "ConnectionAttempts=10"]
    ended = rsh(sockets, *options, HOST, 'A="b  c" ;', 'echo "$A"', "d  e '\"'", "|", "cat -E")
    assert ended.stdout == b'b  c d e "$\n'


def test_a_command_has_the_nodes_environment_not_the_callers(node: Running, sockets: Path) -> None:
    ended = rsh(sockets, HOST, "echo $WHERE $CALLER. $STEPSET_AGENT_DIR", env={**os.environ, "CALLER": "here"})
    assert ended.stdout.startswith(b"on the node . /")


def test_several_commands_run_side_by_side(node: Running, sockets: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with start_rsh(sockets, f"read a < {tmp_path}/fifo; exit $a") as waits:
        assert rsh(sockets, HOST, f"echo 9 > {tmp_path}/fifo").returncode == 0
        assert waits.wait(30) == 9


def test_signal_n_is_exit_code_128_plus_n(node: Running, sockets: Path) -> None:
    assert rsh(sockets, HOST, "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_a_command_ends_with_the_rsh_that_requested_it(node: Running, sockets: Path) -> None:
    before = len(node.alive())
    with start_rsh(sockets, "trap '' TERM; echo on; while :; do sleep 0.1; done") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"on\n"
        client.kill()
    assert until(lambda: len(node.alive()) == before)


def test_a_stop_signal_ends_all_commands_and_the_server_succeeds(node: Running, sockets: Path) -> None:
    with start_rsh(sockets, "echo on; setsid sleep 1000 & exec sleep 1000") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"on\n"
        node.signal(signal.SIGTERM)
        ended = node.end()
        assert client.wait(30) == 128 + signal.SIGTERM
    assert (ended.exit_code, ended.events("failed")) == (0, [])
    assert node.alive() == []


def test_rsh_waits_for_a_node_that_starts_later(tmp_path: Path, sockets: Path) -> None:
    sockets.mkdir()
    with start_rsh(sockets, "exit 3") as client:
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.3)
        with serve(Pod(tmp_path), sockets):
            assert client.wait(30) == 3


def test_an_unknown_node_is_exit_code_255_as_with_ssh(sockets: Path) -> None:
    ended = rsh(sockets, HOST, "true")
    assert ended.returncode == 255
    assert ended.stderr.startswith(b"stepset: no node 127.70.1.2 at ")


def test_a_path_above_the_limit_of_sockets_works(tmp_path: Path) -> None:
    sockets = tmp_path / ("deep" * 20) / ("deeper" * 20)
    with serve(Pod(tmp_path), sockets) as node:
        node.wait_for_line(b'"ready"')
        assert rsh(sockets, HOST, "exit 4").returncode == 4


def test_an_agent_that_cannot_serve_reports_it(tmp_path: Path) -> None:
    with serve(Pod(tmp_path), Path("/proc/self/nothing")) as node:
        ended = node.end()
    assert ended.exit_code == 73
    assert ended.event("failed")["error"].startswith("cannot listen on /proc/self/nothing")


def test_mpirun_starts_ranks_on_the_nodes_through_it(node: Running, sockets: Path, tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()
    pod = Pod(tmp_path / "launcher")
    script = "echo I am $OMPI_COMM_WORLD_RANK $WHERE; echo 5 > $STEPSET_RESULT_FILE"
    ended = pod.run(
        "mpirun", script, launcher=pod.launcher(MPIRUN, 2), program=["/bin/sh", "-c"], command_len=1, mpi=True,
        world_size=2, source="launcher", in_world=False,
        env={"RSH": f"{sys.executable} -I -S {AGENT} rsh {sockets}@{HOST}"},
    )  # fmt: skip
    assert (ended.exit_code, ended.log) == (0, b"5\n")
    assert ended.lines("launcher") == [b"mpirun here"]
    node.signal(signal.SIGTERM)
    on_node = node.end()
    assert [on_node.lines(f"rank {rank}") for rank in (0, 1)] == [[b"I am %d on the node" % rank] for rank in (0, 1)]
    assert sorted(e["rank"] for e in on_node.events("exited")) == [0, 1]


def test_a_rank_that_fails_on_a_node_is_the_launchers_verdict(node: Running, sockets: Path, tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()
    pod = Pod(tmp_path / "launcher")
    script = "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 7; exec sleep 1000"
    ended = pod.run(
        "mpirun", script, launcher=pod.launcher(MPIRUN, 2), program=["/bin/sh", "-c"], command_len=1, mpi=True,
        world_size=2, source="launcher", in_world=False,
        env={"RSH": f"{sys.executable} -I -S {AGENT} rsh {sockets}@{HOST}"},
    )  # fmt: skip
    assert (ended.exit_code, ended.verdict["rank"], ended.verdict["exit_code"]) == (7, 1, 7)
    assert ended.events("failed") == []  # the node's agent has printed it already
    node.signal(signal.SIGTERM)
    assert [e["rank"] for e in node.end().events("failed")] == [1]
