"""Local MPI runs: mpirun reaches the simulated nodes without ssh, and every rank reports to its own node."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.errors import BadInputError
from stepset.watch.state import FailureKind, Phase
from tests.local.conftest import Local

pytestmark = pytest.mark.local

SOURCE = Path(__file__).parents[2] / "examples" / "mpi" / "allreduce.c"
MPIS = {"openmpi": ("mpicc.openmpi", "mpirun.openmpi"), "mpich": ("mpicc.mpich", "mpiexec.hydra")}


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest, local: Local) -> tuple[str, str]:
    """(implementation, its launcher), with examples/mpi/allreduce.c compiled for it."""
    compiler, launcher = MPIS[request.param]
    if shutil.which(compiler) is None or shutil.which(launcher) is None:
        pytest.skip(f"{request.param} and its compiler are not installed")
    subprocess.run([compiler, SOURCE, "-o", local.path("allreduce")], check=True)
    return request.param, launcher


@pytest.mark.parametrize("launcher_is_node", [False, True])
def test_every_rank_of_every_node_takes_part(local: Local, mpi: tuple[str, str], launcher_is_node: bool) -> None:
    implementation, launcher = mpi
    framework = {"kind": "mpi", "implementation": implementation, "run_launcher_as_node": launcher_is_node}
    command = {"script": None, "command": [launcher, "./allreduce"]}
    status = local.run("", framework=framework, num_nodes=2, procs_per_node=2, **command)
    assert (status.phase, status.result) == (Phase.SUCCEEDED, {"world_size": 4, "rank_sum": 10})
    # Open MPI places the first ranks on the launcher's node, regardless of the hostfile's order.
    second = "launcher-0" if launcher_is_node else "node-1"
    assert sorted(row.pod for row in status.ranks if row.rank is not None) == sorted(["node-0", second] * 2)
    assert [row.source for row in status.ranks] == ["rank 0", "rank 1", "rank 2", "rank 3", "launcher"]
    assert {row.state for row in status.ranks} == {"Succeeded"}
    assert [len(local.texts(f"rank {n}")) for n in range(4)] == [1] * 4


def test_the_rank_that_failed_is_named_and_the_others_are_stopped(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    program = local.path("program.sh")
    program.write_text(
        '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 3 ] || exec sleep 600\n'
        'echo "ValueError: bad" >&2\nexit 7\n'
    )
    program.chmod(0o755)
    command = {"script": None, "command": [launcher, "./program.sh"]}
    framework = {"kind": "mpi", "implementation": implementation}
    failure = local.run("", framework=framework, num_nodes=2, procs_per_node=2, **command).failure
    assert failure is not None
    assert (failure.kind, failure.rank, failure.pod, failure.exit_code) == (FailureKind.USER_ERROR, 3, "node-1", 7)
    assert failure.error == "ValueError: bad"


def test_a_launcher_that_starts_too_few_ranks_is_a_failure(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    command = {"script": None, "command": [launcher, "-n", "2", "./allreduce"]}
    framework = {"kind": "mpi", "implementation": implementation}
    status = local.run("", framework=framework, num_nodes=2, procs_per_node=2, **command)
    assert status.phase is Phase.FAILED and status.failure is not None
    assert status.failure.kind is FailureKind.RENDEZVOUS
    assert "started 2 ranks instead of 4" in status.failure.message


class TestAPathWithSpaces:
    def test_does_not_prevent_the_start_of_ranks(self, local: Local, mpi: tuple[str, str]) -> None:
        implementation, launcher = mpi
        framework = {"kind": "mpi", "implementation": implementation}
        command = {"script": None, "command": [launcher, "./allreduce"]}
        request = local.request("", framework=framework, num_nodes=2, **command)
        status = LocalBackend(local.directory / "a home").start(request, local.listener).wait()
        assert (status.phase, status.result) == (Phase.SUCCEEDED, {"world_size": 2, "rank_sum": 3})

    def test_is_refused_if_every_path_has_spaces(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        local.path("t m p").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(local.path("t m p")))  # what TMPDIR sets in a new process
        home = local.directory / "a home"
        with pytest.raises(BadInputError, match="set STEPSET_HOME or TMPDIR to a directory without spaces"):
            LocalBackend(home).start(local.request("", framework="mpi", num_nodes=2))
        assert not home.exists()
