"""The runs of tests/cluster/test_frameworks.py: every framework, and what its result must hold.

Each once, under its usual launcher. What stands on torch takes long to import; other launchers of the same program are
tried where that is cheaper: on this machine (tests/training, tests/airflow/test_examples.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_VENVS = Path(__file__).resolve().parents[2] / ".venvs"


@dataclass(frozen=True)
class Wheel:
    """A program that PyPI has and nothing else here can use, so that it is in no lock.

    Args:
        requirement: what is installed.
        home: the directory it is installed in.
    """

    requirement: str
    home: Path


IMPI = Wheel("impi-rt==2021.18.1", _VENVS / "impi")
# Debian 12's own (4.0.2, over UCX 1.13) does not come out of MPI_Finalize where ranks of several nodes compete for a
# processor: one closes its connections, which the other must take part in, who waits in PMI's barrier already. With
# two cores and four busy loops that is every other run.
MPICH = Wheel("mpich==5.0.2", _VENVS / "mpich")

MET = {"world_size": 4, "rank_sum": 10}
TRAINED = {**MET, "parameters_equal": True}


@dataclass(frozen=True)
class Case:
    """A run of one of the examples, on two nodes.

    Args:
        name: of the run.
        framework: of the job.
        program: what every rank runs, a path in examples/.
        result: what the result holds, besides more.
        target: what the run becomes.
        user: that the pods run as; default: root.
        env: variables of the job.
        job: other fields of the job.
        needs: programs that this machine must have, because the test cluster's pods use them.
        wheel: what the pods are given besides.
        heard_as: how a rank's lines are prefixed: `rank`, or `node` where its launcher is one that stepset gives a
            whole program to start.
        launcher_says: lines that the launcher prints once for each node.
    """

    name: str
    framework: Any
    program: str
    result: Mapping[str, Any] = field(default_factory=lambda: TRAINED)
    target: str = "jobset"
    user: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    wheel: Wheel | None = None
    heard_as: str = "rank"
    launcher_says: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """How many ranks there are to be."""
        return int(self.result["world_size"])


ONE_EPOCH = {"args": ["--epochs", "1"]}
# Every process imports its framework, which on two cores is what all of this takes long for: one rank a node will do
# where another case has two.
MET_BY_TWO = {"world_size": 2, "rank_sum": 3}
TRAINED_BY_TWO = {**MET_BY_TWO, "parameters_equal": True}
ONE_A_NODE = {"procs_per_node": 1}
QUIET = {"OMPI_MCA_mca_base_component_show_load_errors": "0"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **QUIET}
INTEL = {
    "I_MPI_ROOT": str(IMPI.home),
    "LD_LIBRARY_PATH": f"{IMPI.home}/lib",
    "MPI4PY_MPIABI": "impi",
}

SSHD = "/usr/sbin/sshd"
OPENMPI = ("mpirun.openmpi", SSHD)
MPIRUN = ("mpirun", "-x", "PROGRAM", "-x", "PATH")


def _mpi(implementation: str, user: int = 0, as_node: bool = False, **fields: Any) -> Case:
    """An MPI job whose keys are where the user's ssh looks for them."""
    name = f"{implementation}{'-user' if user else ''}"
    home = "/home/trainer" if user else "/root"
    options = {"run_launcher_as_node": as_node, "ssh_auth_mount_path": f"{home}/.ssh"}
    return Case(name, {"kind": "mpi", "implementation": implementation, **options}, user=user, **fields)


CASES = [
    Case("torch", "torch", "torch/train.py", target="trainjob", job=ONE_EPOCH),
    Case("zero", {"kind": "deepspeed"}, "deepspeed/train.py", TRAINED_BY_TWO, job=ONE_A_NODE),
    Case("mlx", "mlx", "mlx/train.py", target="job"),
    _mpi("openmpi", program="mpi/train.py", env=AS_ROOT, needs=OPENMPI),
    _mpi(
        "openmpi",
        user=1000,
        as_node=True,
        program="mpi/train.py",
        env=QUIET,
        needs=OPENMPI,
        job={"script": None, "agent": True, "command": [*MPIRUN, "--display-map", "python3", "-u", "speaking.py"]},
        launcher_says=(" ========================   JOB MAP   ========================",),
    ),
    _mpi("mpich", as_node=True, program="./allreduce", result=MET, needs=("gcc", SSHD), wheel=MPICH),
    _mpi("mpich", user=1000, program="./allreduce", result=MET, needs=("gcc", SSHD), wheel=MPICH),
    _mpi("intel", program="mpi/train.py", env=INTEL, needs=(SSHD,), wheel=IMPI),
    Case("jax", "jax", "jax/train.py", MET_BY_TWO, job={"procs_per_node": "auto"}),
    Case("xgboost", "xgboost", "xgboost/train.py", {**MET, "models_equal": True}, target="statefulset"),
    Case(
        "torchtune",
        {"kind": "torchtune", "recipe": "speaking.py", "config": "torchtune/config.yaml"},
        "torchtune/recipe.py",
        TRAINED_BY_TWO,
        job={"script": None, "args": ["steps=10"], **ONE_A_NODE},
        heard_as="node",
    ),
]
