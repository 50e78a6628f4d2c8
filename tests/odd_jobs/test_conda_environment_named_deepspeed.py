"""An MPI job whose program runs in a conda environment with the name of a launcher."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import launcher

_COMMAND = ["conda", "run", "-n", "deepspeed", "python", "train.py"]
ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "command": _COMMAND},
    expected="mpirun starts the program once for each rank; before, it ran once, in the launcher.",
    source="conda 25.5 conda/cli/main_run.py: the value of -n is an environment, the words after it a program",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_mpirun_starts_the_program(target: str) -> None:
    words = launcher(ODD_JOB.render(target))["command"]
    assert (words[0], words[-len(_COMMAND) :]) == ("mpirun", _COMMAND)
