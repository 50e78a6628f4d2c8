"""An elastic run succeeds only if every node of torchrun's last rendezvous round has ended with 0.

Nodes are killed before, during and after their last save, while the ranks of the other nodes have ended with 0 and
their torchrun waits at its exit barrier. torchrun is real, with a shorter barrier; the ranks do not import torch.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.backends.local.launch import LocalHandle
from stepset.run_status import FailureKind, Phase, RunStatus
from tests.local.conftest import Local, living
from tests.waiting import until

pytestmark = [pytest.mark.local, pytest.mark.frameworks]

TORCHRUN = f"""#!{sys.executable}
import functools, sys
import torch.distributed.launcher.api as api
from torch.distributed.run import main

api.LocalElasticAgent = functools.partial(api.LocalElasticAgent, exit_barrier_timeout=6)
sys.exit(main())
"""
"""torchrun whose nodes wait 6 s instead of 300 s for each other at their end."""

LATE = f"""#!{sys.executable}
import os, socket, sys, time
import torch.distributed.elastic.utils.store as store
from torch.distributed.run import main

add = store._barrier_nonblocking

def late(*args, **kwargs):
    key = add(*args, **kwargs)
    host, _, port = os.environ["PET_RDZV_ENDPOINT"].rpartition(":")
    try:
        while os.environ["STEPSET_NODE_RANK"] != "0":
            socket.create_connection((host, int(port))).close()
            time.sleep(0.01)
    except OSError:
        pass
    return key

store._barrier_nonblocking = late
sys.exit(main())
"""
"""torchrun whose nodes other than node 0 miss the end of the exit barrier, as may happen on busy cores."""

RANK = """
    import os, pathlib, select, socket, sys, time

    stage, when, victims = pathlib.Path(os.environ["STAGE"]), os.environ["WHEN"], os.environ["VICTIMS"].split(",")
    rank, world, node = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "STEPSET_NODE_RANK"))
    again = (stage / "killed").exists()

    def wait_to_be_killed():
        while True:
            time.sleep(1)

    def meet():
        # Ranks that keep connections to rank 0, as those of a framework do.
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == "0":
            with socket.create_server(address) as server:
                return [server.accept()[0] for _ in range(int(world) - 1)]
        while True:
            try:
                return [socket.create_connection(address)]
            except OSError:
                time.sleep(0.05)

    if not again and world != os.environ["STEPSET_NUM_NODES"]:
        wait_to_be_killed()  # by torchrun, which restarts the ranks when another node joins
    connections = meet()
    (stage / f"training.{node}").touch()
    if when == "before" and not again:
        if node in victims:
            wait_to_be_killed()
        select.select(connections, [], [])
        sys.exit("lost connection to a peer")
    part = stage / f"part-{rank}"
    part.with_suffix(".new").write_text("parameters")
    (stage / f"during.{node}").touch()
    if when == "during" and not again and node in victims:
        wait_to_be_killed()
    part.with_suffix(".new").rename(part)
    (stage / f"after.{node}").touch()
    if when == "after" and not again and node in victims:
        wait_to_be_killed()
    with (stage / "ended").open("a") as file:  # one write; the last statement of a rank that ends with 0
        file.write(f"{os.environ['MASTER_PORT']} {rank} {world}\\n")
"""

VICTIMS = {"node 0": (0,), "another node": (1,), "two nodes": (1, 2)}
WHEN = ("before", "during", "after")


@dataclass(frozen=True)
class Stage:
    """The directory in which the ranks of a run leave files."""

    path: Path

    def has(self, *names: str) -> bool:
        """Whether the ranks have left files with these names."""
        return all((self.path / name).exists() for name in names)

    def ended(self) -> list[list[str]]:
        """The ranks that have ended with 0: the round's port, the rank, and the size of its world."""
        path = self.path / "ended"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def last_round_is_complete(self) -> bool:
        """Whether every rank of the last round has ended with 0."""
        ended = self.ended()
        port, _, world = ended[-1]
        return sorted(rank for other, rank, _ in ended if other == port) == [str(each) for each in range(int(world))]


@dataclass(frozen=True)
class Case:
    """One run of three nodes.

    Args:
        when: when the victims are killed: before, during or after their last save.
        victims: the nodes that are killed.
        stage: the files of the ranks.
        handle: the run.
    """

    when: str
    victims: tuple[int, ...]
    stage: Stage
    handle: LocalHandle

    def kill(self) -> None:
        """Waits until the victims are where they are to be killed, and kills them."""
        if self.when == "before":
            names, ended = [f"training.{node}" for node in range(3)], 0
        else:
            names, ended = [f"{self.when}.{node}" for node in self.victims], 3 - len(self.victims)
        assert until(lambda: self.stage.has(*names) and len(self.stage.ended()) == ended), self.handle.name
        (self.stage.path / "killed").touch()
        for node in self.victims:
            os.kill(agent_of(self.handle.name, node), signal.SIGKILL)


def write_torchrun(directory: Path, text: str = TORCHRUN) -> Path:
    """Writes the program `torchrun` to a directory for PATH; returns the directory."""
    directory.mkdir(exist_ok=True)
    program = directory / "torchrun"
    program.write_text(text)
    program.chmod(0o755)
    return directory


def agent_of(run: str, node: int) -> int:
    """Returns the pid of the agent of a node."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = _words(entry)
            if f"/{run}/" in words and f"/pods/node-{node}/config.json" in words and "\0run\0" in words:
                return int(entry.name)
    raise AssertionError(f"no agent of node {node} of {run} runs")


def _words(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has just ended
        return ""


def start(local: Local, when: str, victims: tuple[int, ...], *, restarts: int) -> Case:
    """Starts a run of three nodes, each with one rank."""
    run = f"{when}-{'-'.join(map(str, victims))}"
    programs, stage = write_torchrun(local.path("bin")), local.path(run)
    stage.mkdir()
    settings = {"last_call_timeout": 4, "keep_alive_interval": 1, "join_timeout": 120, "read_timeout": 120}
    handle = local.start(
        RANK,
        name=run,
        framework={"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 3, "rdzv_conf": settings}},
        num_nodes=3,
        procs_per_node=1,
        restart={"max_restarts": restarts},
        deadline="9m",
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STAGE": str(stage),
            "WHEN": when,
            "VICTIMS": ",".join(map(str, victims)),
        },
    )
    return Case(when, victims, Stage(stage), handle)


@pytest.fixture(scope="module", params=WHEN)
def ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Case, RunStatus]]:
    """The runs whose nodes are killed at one moment, at the same time, with their ends."""
    local = Local(tmp_path_factory.mktemp("elastic"))
    cases = {name: start(local, request.param, victims, restarts=1) for name, victims in VICTIMS.items()}
    for case in cases.values():
        case.kill()
    found = {name: (case, case.handle.wait()) for name, case in cases.items()}
    assert until(lambda: living(local.directory) == [])
    return found


@pytest.mark.parametrize("victims", VICTIMS)
def test_a_run_whose_nodes_are_killed_succeeds_only_with_a_complete_last_round(
    ends: dict[str, tuple[Case, RunStatus]], victims: str
) -> None:
    case, status = ends[victims]
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert case.stage.last_round_is_complete(), case.stage.ended()
    if case.when != "before" or victims == "node 0":
        assert status.attempt == 1, "the gang was started again"


def test_without_a_restart_left_the_run_fails_and_names_the_reason(local: Local) -> None:
    case = start(local, "during", (1,), restarts=0)
    case.kill()
    status = case.handle.wait()
    assert status.phase is Phase.FAILED and status.failure is not None
    assert status.failure.kind is FailureKind.RENDEZVOUS, status.failure
    # The killed node is started again. On a busy machine it may end first, because the rendezvous or node 0's store is
    # already closed.
    reasons = {71: "not every node of torchrun's last round has ended with 0", 1: "Rendezvous(Closed|Connection)Error"}
    assert re.search(reasons[status.failure.exit_code or 0], status.failure.message)


def test_a_node_that_reaches_the_exit_barrier_after_node_0_has_ended_does_not_fail_the_run(local: Local) -> None:
    programs = write_torchrun(local.path("bin"), LATE)
    local.backend = LocalBackend(local.home, grace=30)
    status = local.run(
        "",
        framework={"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}},
        num_nodes=2,
        procs_per_node=1,
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert status.phase is Phase.SUCCEEDED, status.failure
