"""An MPI job whose rendezvous port is also the port of its nodes' ssh servers."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"framework": {"kind": "mpi", "ssh_port": 29500}, "num_nodes": 2},
    expected="The job is refused; before, torch in the ranks could not open the port, because sshd used it.",
    source="OpenSSH sshd_config(5), Port; torch.distributed: rank 0 listens at MASTER_PORT",
    refused=everywhere("network.port: 29500 is also the port of the nodes' ssh servers (framework.ssh_port); give"),
)


def test_another_framework_has_no_ssh_servers() -> None:
    assert ODD_JOB.render("jobset", framework="torch", network={"port": 2222})
