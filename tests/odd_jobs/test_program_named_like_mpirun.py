"""An MPI job whose program has a name that begins with that of a launcher."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import launcher

ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "command": ["./mpirun_x", "in.dat"]},
    expected="mpirun starts the program once for each rank; before, it ran once, in the launcher.",
    source="open-mpi/ompi v4.1.4 orte/tools/orterun/orterun.1in: the names mpirun, mpiexec and orterun",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_mpirun_starts_the_program(target: str) -> None:
    words = launcher(ODD_JOB.render(target))["command"]
    assert (words[0], words[-2:]) == ("mpirun", ["./mpirun_x", "in.dat"])
