"""The variables of MPI launchers and ranks when all nodes are on this machine.

Tested with Open MPI 4.1.4 and 5.0.11, and MPICH 4.0.2 and 5.0.2 (docs/design/local.md).
"""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[str, str, str]
"""The name of a variable, its value, and the reason for the value."""


@dataclass(frozen=True)
class Places:
    """The facts that determine the variables of a pod.

    Args:
        nodes: the number of nodes of the world.
        interface: the name of the loopback interface.
        rsh: the path of the program that replaces ssh.
        scratch: a directory that only this pod uses. The path of the directory is short.
        crowded: whether the run has more processes than this machine has cores.
        root: whether the user is root. MPI implementations refuse to run as root unless two variables are set.
    """

    nodes: int
    interface: str
    rsh: str
    scratch: str
    crowded: bool
    root: bool


def mpi_rows(places: Places, *, launcher: bool) -> list[Row]:
    """Returns the variables of Open MPI (OMPI_MCA_*, PRTE_MCA_*), MPICH (HYDRA_*) and Intel MPI (I_MPI_*).

    Open MPI 4 reads only OMPI_MCA_*. Open MPI 5 also reads PRTE_MCA_*. The daemons of Open MPI 5 do not accept the
    loopback interface (PRTE_MCA_prte_if_include=lo: "No network interfaces were found"). The daemons listen at the
    other addresses of the machine. `ports.guard` blocks packets from other hosts to these addresses.

    Args:
        launcher: whether the pod runs mpirun. A pod that does not run mpirun is a node. mpirun passes OMPI_MCA_* on to
            all ranks.
    """
    here = "all nodes are this machine"
    no_ssh = "nodes are reached without ssh"
    rows = [
        ("OMPI_MCA_plm_rsh_agent", places.rsh, no_ssh),
        ("PRTE_MCA_plm_ssh_agent", places.rsh, no_ssh),
        ("OMPI_MCA_btl", "self,vader,tcp", "shared memory within a node; Open MPI 5 accepts vader as a name of sm"),
        ("OMPI_MCA_btl_tcp_if_include", places.interface, here),
        ("OMPI_MCA_oob_tcp_if_include", places.interface, here),
        ("OMPI_MCA_osc", "^ucx", "without a UCX network, Open MPI 5 prints an error for each one-sided window"),
        ("HYDRA_LAUNCHER", "ssh", no_ssh),
        ("HYDRA_LAUNCHER_EXEC", places.rsh, no_ssh),
        ("HYDRA_IFACE", places.interface, "the machine's name need not resolve"),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh", no_ssh),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", places.rsh, no_ssh),
        ("I_MPI_HYDRA_IFACE", places.interface, "the machine's name need not resolve"),
    ]
    if places.nodes > 1:
        coll = "these components assume that ranks with the same host name share a daemon, and hang"
        rows.append(("OMPI_MCA_coll", "^acoll,han,sm,xhc", coll))
    if places.crowded:
        rows += [(name, value, "more processes than cores: a waiting rank yields its core") for name, value in _YIELD]
    if not launcher:
        own = "each node has its own session files"
        shm = "nodes of one host name would use the same files of shared memory, and crash"
        rows += [
            ("OMPI_MCA_orte_tmpdir_base", places.scratch, own),
            ("PRTE_MCA_prte_tmpdir_base", places.scratch, own),
        ]
        if places.nodes > 1:
            rows += [
                ("OMPI_MCA_btl_vader_backing_directory", places.scratch, shm),
                ("OMPI_MCA_btl_sm_backing_directory", places.scratch, shm),
            ]
    if places.root:
        rows += [
            (f"{family}_ALLOW_RUN_AS_ROOT{twice}", "1", "MPI refuses to run as root without it")
            for family in ("OMPI", "PRTE")
            for twice in ("", "_CONFIRM")
        ]
    return rows


_YIELD = (
    # Open MPI itself sets this variable only if a node has more ranks than slots. Every simulated node has a slot for
    # each of its ranks, although all nodes share the cores of the machine.
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
)
