"""An MPI job whose mpirun starts fewer ranks than the job has."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import launcher

_COMMAND = ["mpirun", "-np", "2", "./a.out"]
ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "procs_per_node": 2, "command": _COMMAND},
    expected="The job is refused; before, the run failed when the ranks started.",
    source="open-mpi/ompi v4.1.4 orte/tools/orterun/orterun.1in: -np is the number of processes of all nodes",
    refused=everywhere("command: -np 2 of mpirun contradicts the 4 ranks of the job"),
)


def test_a_program_that_spawns_the_other_ranks_needs_launch_command() -> None:
    objects = ODD_JOB.render("jobset", framework={"kind": "mpi", "launch": "command"})
    assert launcher(objects)["command"][-4:] == _COMMAND
