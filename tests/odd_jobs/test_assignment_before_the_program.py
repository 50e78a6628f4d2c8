"""A command that begins with the assignment of a variable, as in a shell."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "its first word is 'OMPI_MCA_btl=self,tcp', which only a shell takes for a variable; set the variable in env"
ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "command": ["OMPI_MCA_btl=self,tcp", "mpirun", "-n", "2", "./a.out"]},
    expected="The job is refused; before, mpirun was written before the assignment, which it cannot execute.",
    source="kubernetes v1.36 staging/src/k8s.io/api/core/v1/types.go, Container.command: not executed within a shell",
    refused=everywhere(f"command: {WORDS}"),
)


def test_the_command_of_a_role_is_refused_too() -> None:
    role = {"name": "board", "command": ODD_JOB.job["command"]}
    with pytest.raises(BadInputError, match=f"roles.0.command: {WORDS}"):
        OddJob(job={"roles": [role]}, expected="", source="").render("jobset")


@pytest.mark.parametrize("command", [["env", "A=1", "./a.out"], ["./a=b"], ["/opt/x=1/run", "A=1"]])
def test_other_programs_may_contain_an_equals_sign(command: list[str]) -> None:
    assert OddJob(job={"framework": "plain", "command": command}, expected="", source="").render("jobset")
