"""The runs of tests/cluster/test_frameworks.py: every framework, and its expected result.

Each framework runs once, under its usual launcher. Frameworks based on torch take long to import; other launchers of
the same program are tested on this machine, which is cheaper (tests/training, tests/airflow/test_examples.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_VENVS = Path(__file__).resolve().parents[2] / ".venvs"


@dataclass(frozen=True)
class Wheel:
    """A program from PyPI that only these tests use, so it is in no lock file.

    Args:
        requirement: the requirement to install.
        home: the directory of the installation.
    """

    requirement: str
    home: Path


IMPI = Wheel("impi-rt==2021.18.1", _VENVS / "impi")
# Debian 12's MPICH (4.0.2, over UCX 1.13) can hang in MPI_Finalize if ranks of several nodes compete for a processor:
# one rank closes its connections, which needs the other, but that one already waits in PMI's barrier. With two cores
# and four busy loops this happens in every other run.
MPICH = Wheel("mpich==5.0.2", _VENVS / "mpich")

MET = {"world_size": 4, "rank_sum": 10}
TRAINED = {**MET, "parameters_equal": True}


@dataclass(frozen=True)
class Case:
    """A run of one of the examples, on two nodes.

    Args:
        name: the run's name.
        framework: the job's framework.
        program: the program of every rank, a path in examples/.
        result: entries that the result must contain.
        target: the run's target.
        user: the user id of the pods; default: root.
        env: the job's variables.
        job: other fields of the job.
        needs: programs that this machine must have, because the test cluster's pods use them.
        wheel: a program that is installed for the pods.
        source_kind: the prefix of a rank's lines: `rank`, or `node` if stepset starts the launcher only.
        launcher_lines: lines that the launcher prints once for each node.
        variables: variables of every rank, with their values; None: the ranks lack it.
        bound: whether the job binds each rank to a part of the cores.
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
    source_kind: str = "rank"
    launcher_lines: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)
    bound: bool = False

    @property
    def world(self) -> int:
        """The expected number of ranks."""
        return int(self.result["world_size"])


ONE_EPOCH = {"args": ["--epochs", "1"]}
# Importing the frameworks takes most of the time on two cores, so a framework has one rank per node if another case
# has two.
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
MPIRUN = ("mpirun", "-x", "PROGRAM", "-x", "PATH", "-x", "REPORT")
VISIBLE_GPUS = "NVIDIA_VISIBLE_DEVICES"
LAUNCHER_RESOURCES = {"cpu": "100m", "memory": "256Mi"}


def _mpi(implementation: str, user: int = 0, as_node: bool = False, **fields: Any) -> Case:
    """An MPI job whose SSH keys are in the user's ~/.ssh."""
    name = f"{implementation}{'-user' if user else ''}"
    home = "/home/trainer" if user else "/root"
    options: dict[str, Any] = {"run_launcher_as_node": as_node, "ssh_auth_mount_path": f"{home}/.ssh"}
    if not as_node:
        options["launcher_resources"] = LAUNCHER_RESOURCES
    return Case(name, {"kind": "mpi", "implementation": implementation, **options}, user=user, **fields)


CASES = [
    Case("torch", "torch", "torch/train.py", target="trainjob", job=ONE_EPOCH),
    Case(  # torchrun is put before the command
        "torch-command",
        "torch",
        "torch/train.py",
        TRAINED_BY_TWO,
        job={"script": None, "command": ["env", "A=1", "python3", "speaking.py"], **ONE_EPOCH, **ONE_A_NODE},
    ),
    Case("zero", {"kind": "deepspeed"}, "deepspeed/train.py", TRAINED_BY_TWO, job=ONE_A_NODE),
    Case("mlx", "mlx", "mlx/train.py", target="job"),
    _mpi(
        "openmpi",
        program="mpi/train.py",
        env=AS_ROOT,
        needs=OPENMPI,
        variables={"MASTER_ADDR": "openmpi-node-0-0.openmpi", VISIBLE_GPUS: None},
    ),
    _mpi(
        "openmpi",
        user=1000,
        as_node=True,
        program="mpi/train.py",
        env={**QUIET, "OMPI_MCA_hwloc_base_binding_policy": "core"},
        needs=OPENMPI,
        job={"script": None, "agent": True, "command": [*MPIRUN, "--display-map", "python3", "-u", "speaking.py"]},
        launcher_lines=(" ========================   JOB MAP   ========================",),
        # mpirun does not pass them on: on the other node sshd sets them.
        variables={"MASTER_ADDR": "openmpi-user-launcher-0-0.openmpi-user", "MASTER_PORT": "29500"},
        bound=True,
    ),
    _mpi(
        "mpich",
        as_node=True,
        program="./allreduce",
        result=MET,
        env={"my.var": "a b"},
        needs=("gcc", SSHD),
        wheel=MPICH,
        variables={"my.var": "a b"},
    ),
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
        source_kind="node",
    ),
]
