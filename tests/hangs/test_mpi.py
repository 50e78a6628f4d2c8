"""mpirun starts ranks in other pods. The agent of each pod reports the ranks of its own pod."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pods import Running
from tests.agent.test_mpirun import MpiPods, started
from tests.hangs.conftest import main_process, stack

PROGRAM = """
import os, time
def planted(): time.sleep(1000)
def waits(): time.sleep(1000)
print("runs", flush=True)
planted() if (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]) == "2" else waits()
"""
HANG = {"after": 2, "first": 5}


@pytest.fixture(params=["mpich", pytest.param("openmpi", marks=pytest.mark.frameworks)])
def pods(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MpiPods]:
    """Two nodes whose agents watch their ranks, for each MPI that is installed."""
    with started(request.param, tmp_path, hang=HANG) as found:
        yield found


def stalled(node: Running, ranks: set[int]) -> dict[int, dict[str, Any]]:
    """Waits for the event `stalled` of ranks of a node. Before the ranks start, the agent may report their launcher."""
    found: dict[int, dict[str, Any]] = {}
    while not ranks <= set(found):
        event = json.loads(node.wait_for_line(b'{"event": "stalled"').partition(b"] ")[2])
        found[event.get("rank", -1)] = event
    return found


MPI4PY = """
import time
from mpi4py import MPI
world = MPI.COMM_WORLD
def receives(): return world.recv(source=2)
def sleeps(): time.sleep(1000)
receives() if world.rank == 1 else sleeps() if world.rank == 2 else world.Barrier()
"""


@pytest.mark.frameworks
@pytest.mark.parametrize("pods", ["openmpi"], indirect=True)
def test_the_event_contains_the_call_in_which_a_rank_polls(pods: MpiPods) -> None:
    pytest.importorskip("mpi4py")
    with pods.start(f"exec {sys.executable} -c '{MPI4PY}'", grace=1):
        events = {}
        for node, ranks in zip(pods.nodes, ({0, 1}, {2, 3}), strict=True):
            events.update(stalled(node, ranks))
    found = [main_process(events[rank]) for rank in range(4)]
    assert [each.get("call", "") for each in found] == ["MPI_Barrier", "MPI_Mprobe", "", "MPI_Barrier"]
    assert [stack(each)[0] for each in found] == ["<module>", "receives", "sleeps", "<module>"]
    assert not any(each["busy"] for each in found)


def test_each_agent_reports_the_ranks_of_its_pod(pods: MpiPods) -> None:
    with pods.start(f"exec {sys.executable} -c '{PROGRAM}'", grace=1):
        first, second = (stalled(node, ranks) for node, ranks in zip(pods.nodes, ({0, 1}, {2, 3}), strict=True))
    assert {0, 1} == {*first} - {-1}
    assert {2, 3} == {*second} - {-1}
    assert [stack(main_process(first[rank])) for rank in (0, 1)] == [["waits", "<module>"]] * 2
    assert [stack(main_process(second[rank]))[0] for rank in (2, 3)] == ["planted", "waits"]
