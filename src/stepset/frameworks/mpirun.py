"""The options of mpirun, and a function that finds the program in an mpirun command.

stepset inserts the agent before the program, so that the agent wraps every rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepset.frameworks.command_options import Grammar, read_options
from stepset.plan.launchers import is_mpi_launcher

# Sources: the manual pages mpirun(1) of Open MPI 4 and 5, and mpiexec.hydra(1) of MPICH and Intel MPI.
MPIRUN = Grammar(
    one=frozenset({
        "-n", "-np", "--n", "--np", "-c", "-x", "-H", "-host", "--host", "-hosts", "-f", "-machinefile",
        "--machinefile", "-hostfile", "--hostfile", "--bind-to", "-bind-to", "--map-by", "-map-by", "--rank-by", "-N",
        "-npernode", "--npernode", "-npersocket", "-ppn", "-perhost", "-iface", "-localhost", "-launcher",
        "-launcher-exec", "-wdir", "--wdir", "-wd", "-path", "--path", "--prefix", "-prefix", "--output-filename",
        "-genvlist", "-envlist", "-bootstrap", "-bootstrap-exec", "--timeout", "--output", "--prtemca-param",
    }),
    two=frozenset({"-mca", "--mca", "--pmixmca", "--prtemca", "-gmca", "--gmca"}),
    # Hydra accepts `-genv A 1` and `-genv A=1` (MPICH 4 ui/mpich/utils.c, genv_fn and env_fn).
    pair=frozenset({"-genv", "-env", "--genv", "--env"}),
    none=frozenset({
        "--allow-run-as-root", "-allow-run-as-root", "--oversubscribe", "-oversubscribe", "--nooversubscribe",
        "--tag-output", "-tag-output", "--timestamp-output", "-q", "--quiet", "-v", "--verbose", "--display-map",
        "--display-allocation",
        "--report-bindings", "-report-bindings", "-prepend-rank", "-l", "-genvall", "-genvnone", "-envall", "-bynode",
        "--bynode", "-byslot", "--byslot", "-bycore", "-print-rank-map", "--no-local", "-nolocal", "-pernode",
        "--pernode",
    }),
)  # fmt: skip


def split_mpirun(command: Sequence[str]) -> int | None:
    """Returns the index of the program in an mpirun command, or None if the index cannot be determined.

    The result is None in the following cases:

    - The command is not mpirun.
    - The command has an option that `MPIRUN` does not contain.
    - The command starts several programs, which are separated by `:`.

    >>> split_mpirun(["mpirun", "-np", "4", "--bind-to", "none", "./a.out", "-v"])
    5
    """
    if not command or not is_mpi_launcher(command[0]) or ":" in command:
        return None
    program = read_options(command[1:], MPIRUN).program
    return None if program is None else program + 1
