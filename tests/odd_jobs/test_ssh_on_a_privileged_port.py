"""ssh servers on port 22 that do not run as root."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.notes import cluster_notes
from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import request

ODD_JOB = OddJob(
    job={"num_nodes": 2, "framework": {"kind": "mpi", "ssh_port": 22}, "security": "restricted"},
    expected="Kubernetes accepts the job. A note states that the ssh servers may not be able to listen on the port.",
    source="Linux, ip(7), ip_unprivileged_port_start; kubernetes, Pod Security Standards, restricted",
    refused=WITHOUT_LAUNCHER,
)
SYSCTL = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}


def test_the_port_is_noted() -> None:
    assert cluster_notes(request(**ODD_JOB.job).job) == (
        "framework.ssh_port: with security: restricted the ssh servers do not run as root and may not be able to listen"
        " on port 22; give 1024 or above",
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"security": None},
        {"framework": {"kind": "mpi", "ssh_port": 1024}},
        {"pod_template": {"securityContext": {"sysctls": [SYSCTL]}}},
    ],
)
def test_root_a_port_from_1024_on_and_a_sysctl_have_no_note(changed: dict[str, Any]) -> None:
    assert cluster_notes(request(**{**ODD_JOB.job, **changed}).job) == ()
