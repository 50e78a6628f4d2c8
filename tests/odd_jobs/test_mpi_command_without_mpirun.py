"""An MPI job whose command starts no ranks: a program, and a program in a shell's text."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import launcher

ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "command": ["./allreduce"], "env": {"LR": "0.1"}},
    expected="stepset writes mpirun before the command; without it the launcher would run the program alone.",
    source="open-mpi/ompi v4.1.4 orte/tools/orterun/orterun.1in: only mpirun reads the host file and starts ranks",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
@pytest.mark.parametrize("command", [["./allreduce"], ["bash", "-c", "./allreduce # not mpirun"]])
def test_the_launcher_runs_mpirun_with_the_jobs_variables(target: str, command: list[str]) -> None:
    words = launcher(ODD_JOB.render(target, command=command))["command"]
    assert (words[0], words[-len(command) :]) == ("mpirun", command)
    assert "-x LR " in " ".join(words)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_a_command_with_mpirun_is_unchanged(target: str) -> None:
    command = ["env", "A=1", "mpirun", "-n", "2", "./allreduce"]
    assert launcher(ODD_JOB.render(target, command=command))["command"] == command
