"""Finds the program in the user's mpirun command, so that the agent can wrap every rank."""

from __future__ import annotations

from collections.abc import Sequence

from stepset.plan.mpi_launch import is_mpi_launcher

# Options with their number of values: Open MPI 4/5 mpirun(1), MPICH and Intel MPI mpiexec.hydra(1).
_ONE = {
    "-n", "-np", "--np", "-c", "-x", "-H", "-host", "--host", "-hosts", "-f", "-machinefile", "--machinefile",
    "-hostfile", "--hostfile", "--bind-to", "-bind-to", "--map-by", "-map-by", "--rank-by", "-N", "-npernode",
    "--npernode", "-npersocket", "-ppn", "-perhost", "-iface", "-localhost", "-launcher", "-launcher-exec",
    "-wdir", "--wdir", "-wd", "-path", "--path", "--prefix", "-prefix", "--output-filename", "-genvlist", "-envlist",
    "-bootstrap", "-bootstrap-exec", "--timeout", "--output", "--prtemca-param",
}  # fmt: skip
_TWO = {"-mca", "--mca", "--pmixmca", "--prtemca", "-gmca", "--gmca", "-genv", "-env"}
_NONE = {
    "--allow-run-as-root", "-allow-run-as-root", "--oversubscribe", "-oversubscribe", "--nooversubscribe",
    "--tag-output", "-tag-output", "--timestamp-output", "-q", "--quiet", "-v", "--verbose", "--display-map",
    "--display-allocation",
    "--report-bindings", "-report-bindings", "-prepend-rank", "-l", "-genvall", "-genvnone", "-envall", "-bynode",
    "--bynode", "-byslot", "--byslot", "-bycore", "-print-rank-map", "--no-local", "-nolocal",
}  # fmt: skip


def split_mpirun(command: Sequence[str]) -> int | None:
    """Index of the program in an mpirun command, or None if it cannot be determined.

    None for other commands, for options missing in these tables, and for several programs (`:`).

    >>> split_mpirun(["mpirun", "-np", "4", "--bind-to", "none", "./a.out", "-v"])
    5
    """
    if not command or not is_mpi_launcher(command[0]) or ":" in command:
        return None
    at = 1
    while at < len(command) and command[at].startswith("-"):
        word = command[at]
        if word in _TWO:
            at += 3
        elif word in _ONE:
            at += 2
        elif word in _NONE or "=" in word:
            at += 1
        else:
            return None
    return at if at < len(command) else None
