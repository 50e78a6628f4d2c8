"""Checks that the name and the content of an MPI job's script agree on whether the script starts the ranks."""

from __future__ import annotations

import shlex
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.mpi_launch import SHELLS, launcher_in, starts_ranks
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI

_LIMIT = 256 * 1024
"""Maximum size of a shell script, in bytes; a larger file is a program and is not checked."""


def check_mpi_script(job: TrainingJob, directory: Path) -> None:
    """Raises BadInputError if the script contradicts what its name indicates (`stepset.plan.mpi_launch`).

    A command that is named as a shell script runs once, in the launcher; without mpirun in it, it would be one process.
    mpirun starts any other command once for each rank; with mpirun in it, each rank would start all ranks. A file that
    is not in `directory`, the job's code, is not checked: the image may have it.
    """
    if not job.needs_launcher or not job.command or (isinstance(job.framework, MPI) and job.framework.launch != "auto"):
        return
    found = starts_ranks([*job.command, *job.args])
    name = found.name if found else job.command[0]
    if (found and found.what == "launcher") or (text := _text(directory / name)) is None:
        return
    if found and launcher_in(text) is None:
        raise BadInputError(
            f"command: the script {name} starts no mpirun, so that it would run as one process; if it is the program of"
            f" each rank, write {shlex.join(['mpirun', *job.command])}, otherwise set framework: {{kind: mpi, launch:"
            " command}"
        )
    if not found and _is_shell_script(text) and (launcher := launcher_in(text)):
        raise BadInputError(
            f"command: the script {name} starts {launcher} itself, and mpirun would start it once for each rank; set"
            " framework: {kind: mpi, launch: command}"
        )


def _text(path: Path) -> str | None:
    """Returns the content of a script; None if the file is missing, or is something else."""
    try:
        if not path.is_file():
            return None
        content = read_regular(path.resolve(), _LIMIT)
    except (OSError, ChangedError):
        return None
    return None if content is None or b"\0" in content else content.decode(errors="replace")


def _is_shell_script(text: str) -> bool:
    first = text.partition("\n")[0]
    return first.startswith("#!") and any(Path(word).name in SHELLS for word in first[2:].split())
