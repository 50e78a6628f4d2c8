"""An MPI job without an agent on a real cluster: ssh accepts only the host key of the run."""

from __future__ import annotations

import shutil

import pytest

from stepset.run_status import Phase
from tests.cluster.runs import Runs
from tests.frameworks.cases.mpi import AS_ROOT, OPENMPI

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(("user", "home"), [(0, "/root"), (1000, "/home/trainer")])
def test_the_ranks_of_both_nodes_start(runs: Runs, user: int, home: str) -> None:
    if runs.cluster.choice is None or any(shutil.which(name) is None for name in OPENMPI):
        pytest.skip("needs Open MPI and an SSH server in the pods; the cluster of `make cluster` has them")
    framework = {"kind": "mpi", "implementation": "openmpi", "ssh_auth_mount_path": f"{home}/.ssh"}
    status, listener = runs.run(
        run=f"keys-{user}",
        framework=framework,
        num_nodes=2,
        procs_per_node=1,
        script=None,
        command=["mpirun", "hostname"],
        agent=False,
        env=AS_ROOT,
        pod_template={"securityContext": {"runAsUser": user, "runAsGroup": user}},
    )
    assert status.phase is Phase.SUCCEEDED, (status.failure, listener.texts("launcher"))
    assert {f"keys-{user}-node-0-{n}" for n in range(2)} <= {text.split(".")[0] for text in listener.texts("launcher")}
