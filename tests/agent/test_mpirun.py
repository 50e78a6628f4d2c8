"""The agent under real MPI launchers, with agents as the ssh servers of the nodes."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pods import AGENT, Ended, Pod, Running

HOSTS = ("127.70.81.1", "127.70.81.2")
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
MPICH = {"HYDRA_LAUNCHER": "ssh", "HYDRA_IFACE": "lo"}


class MpiPods:
    """Two nodes and a launcher on this machine."""

    def __init__(self, kind: str, directory: Path, nodes: list[Running]) -> None:
        self.nodes = nodes
        self._directory = directory
        self._program = f"mpirun.{kind}"
        hostfile, shim = directory / "hostfile", directory / "rsh"
        form = "{} slots=2\n" if kind == "openmpi" else "{}:2\n"
        hostfile.write_text("".join(form.format(host) for host in HOSTS))
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {AGENT} rsh {directory}/sockets "$@"\n')
        shim.chmod(0o755)
        self.without_agents = (
            ["-x", "STEPSET_AGENT_DIR=/nowhere"] if kind == "openmpi" else ["-genv", "STEPSET_AGENT_DIR", "/nowhere"]
        )
        self._env = (
            {**OPEN_MPI, "OMPI_MCA_plm_rsh_agent": str(shim), "OMPI_MCA_orte_default_hostfile": str(hostfile)}
            if kind == "openmpi"
            else {**MPICH, "HYDRA_LAUNCHER_EXEC": str(shim), "HYDRA_HOST_FILE": str(hostfile)}
        )

    def start(self, script: str, *options: str, **more: Any) -> Running:
        """Starts a shell script as four ranks."""
        (self._directory / "launcher").mkdir(exist_ok=True)
        config = {"mpi": True, "world_size": 4, "source": "launcher", "group": "launcher", "in_world": False}
        launcher = [self._program, "-np", "4", *options]
        launched = {"launcher": launcher, "program": ["/bin/sh", "-c"], "command_len": 1}
        return Pod(self._directory / "launcher").start("x", script, env=self._env, **{**launched, **config, **more})

    def run(self, script: str, *options: str, **more: Any) -> Ended:
        with self.start(script, *options, **more) as running:
            return running.end()

    def end_nodes(self) -> list[Ended]:
        """Stops the nodes."""
        for node in self.nodes:
            node.signal(signal.SIGTERM)
        return [node.end() for node in self.nodes]


@contextmanager
def started(kind: str, directory: Path, **config: Any) -> Iterator[MpiPods]:
    """Starts the agents of two nodes. Skips the test if the MPI is not installed.

    Args:
        kind: openmpi or mpich.
        config: further keys of the CONFIG.json of the nodes.
    """
    if not shutil.which(f"mpirun.{kind}"):
        pytest.skip(f"{kind} is not installed")
    with ExitStack() as stack:
        nodes = []
        for host in HOSTS:
            own = directory / host
            (own / "tmp").mkdir(parents=True)
            env = {"TMPDIR": str(own / "tmp"), "OMPI_MCA_orte_tmpdir_base": str(own / "tmp"), **OPEN_MPI}
            serve = str(directory / "sockets" / host)
            nodes.append(stack.enter_context(Pod(own).start(serve=serve, group="node", env=env, **config)))
        for node in nodes:
            node.wait_for_line(b'"ready"')
        yield MpiPods(kind, directory, nodes)


@pytest.fixture(params=["openmpi", "mpich"])
def pods(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MpiPods]:
    """The agents of two nodes, for each MPI that is installed."""
    with started(request.param, tmp_path) as found:
        yield found


def test_ranks_run_on_the_nodes_and_the_launcher_gets_the_result(pods: MpiPods) -> None:
    ended = pods.run('echo "hello from a rank"; echo 5 > $STEPSET_RESULT_FILE')
    assert (ended.exit_code, ended.log) == (0, b"5\n")
    assert ended.event("result")["result"] == 5
    first, second = pods.end_nodes()
    assert [first.lines(f"rank {n}") for n in (0, 1)] == [[b"hello from a rank"]] * 2
    assert [second.lines(f"rank {n}") for n in (2, 3)] == [[b"hello from a rank"]] * 2


def test_a_rank_that_exits_with_a_code_is_reported(pods: MpiPods) -> None:
    script = "r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ $r = 3 ] && { echo 'ValueError: bad'; exit 7; }; exec sleep 1000"
    ended = pods.run(script)
    assert ended.exit_code != 0
    assert (ended.verdict["rank"], ended.verdict["exit_code"]) == (3, 7)
    assert ended.verdict["error"] == "ValueError: bad"


def test_too_few_ranks_are_reported(pods: MpiPods) -> None:
    ended = pods.run("true", world_size=5)
    assert (ended.exit_code, ended.verdict["kind"]) == (71, "Rendezvous")


def test_lines_of_pods_without_agent_pass_through_mpirun_unbroken(pods: MpiPods) -> None:
    text = "x" * 1500
    ended = pods.run(f"i=0; while [ $i -lt 100 ]; do echo $i {text}; i=$((i+1)); done", *pods.without_agents)
    assert ended.exit_code == 0
    for rank in range(4):
        assert ended.lines(f"rank {rank}") == [f"{i} {text}".encode() for i in range(100)]


SAVES = "trap 'sleep 3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"


def test_ranks_have_time_to_save_when_the_launcher_is_stopped(pods: MpiPods) -> None:
    with pods.start(SAVES) as running:
        for node in pods.nodes:
            node.wait_for_line(b"ready", 2)
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert (ended.exit_code, ended.events("failed")) == (128 + signal.SIGTERM, [])
    assert saved(pods.end_nodes())


def test_ranks_have_time_to_save_when_the_nodes_are_stopped(pods: MpiPods) -> None:
    with pods.start(SAVES) as running:
        for node in pods.nodes:
            node.wait_for_line(b"ready", 2)
        assert saved(pods.end_nodes())
        running.end()


def test_ranks_get_one_signal_when_all_pods_are_stopped(pods: MpiPods) -> None:
    # Each rank continues for two seconds after the signal, so that it would get a second one.
    script = (
        "trap 'echo stopping; stop=1' TERM; echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i+stop)); done"
    )
    with pods.start(script) as running:
        for node in pods.nodes:
            node.wait_for_line(b"ready", 2)
        for agent in (running, *pods.nodes):
            agent.signal(signal.SIGTERM)
        assert running.end().exit_code == 128 + signal.SIGTERM
    first, second = (node.end() for node in pods.nodes)
    for ended, ranks in ((first, (0, 1)), (second, (2, 3))):
        for rank in ranks:
            assert ended.lines(f"rank {rank}").count(b"stopping") == 1


def saved(nodes: list[Ended]) -> bool:
    """Returns whether all four ranks had time to save."""
    sources = [(nodes[0], "rank 0"), (nodes[0], "rank 1"), (nodes[1], "rank 2"), (nodes[1], "rank 3")]
    return all(node.lines(source)[-1] == b"saved" for node, source in sources)
