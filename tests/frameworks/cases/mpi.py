"""The data of MPI."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.frameworks.cases.case import MET, VENVS, Form, FrameworkCase, PodRun, Wheel

IMPI = Wheel("impi-rt==2021.18.1", VENVS / "impi")
# Debian 12's MPICH (4.0.2, over UCX 1.13) can hang in MPI_Finalize if ranks of several nodes compete for a processor:
# one rank closes its connections, which needs the other, but that one already waits in PMI's barrier. With two cores
# and four busy loops this happens in every other run.
MPICH = Wheel("mpich==5.0.2", VENVS / "mpich")

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


def _mpi(implementation: str, user: int = 0, as_node: bool = False, **fields: Any) -> PodRun:
    """An MPI job whose SSH keys are in the user's ~/.ssh."""
    name = f"{implementation}{'-user' if user else ''}"
    home = "/home/trainer" if user else "/root"
    options: dict[str, Any] = {"run_launcher_as_node": as_node, "ssh_auth_mount_path": f"{home}/.ssh"}
    if not as_node:
        options["launcher_resources"] = LAUNCHER_RESOURCES
    return PodRun(name, {"kind": "mpi", "implementation": implementation, **options}, user=user, **fields)


def _options(_: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "implementation": st.sampled_from(["openmpi", "intel", "mpich"]),
            "run_launcher_as_node": st.booleans(),
            "launch": st.sampled_from(["auto", "command"]),
            "ssh_port": st.integers(1, 65535),
            "ssh_auth_mount_path": st.sampled_from(["/data", "/ckpt/digits", "/a/b/c"]),
        },
    )


CASE = FrameworkCase(
    forms=(Form("mpi", (1, 1, 4, 2, 8), lists_hosts=True),),
    options=_options,
    reserved=("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"),
    training="tests/training/test_frameworks.py::test_mpich_of_pypi_spans_the_nodes",
    pods=(
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
    ),
)
