"""Checks that the content of an MPI job's script fits the name of the script.

The name determines whether the script must start the ranks.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.launchers import SHELLS
from stepset.plan.mpi_launch import launcher_in, starts_ranks
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI

_LIMIT = 256 * 1024
"""The maximum size of a shell script, in bytes. A larger file is a program and is not checked."""


def check_mpi_script(job: TrainingJob, directory: Path) -> None:
    """Raises BadInputError if the content of an MPI job's script does not fit the name of the script.

    The name decides how stepset runs the script (`stepset.plan.mpi_launch`):

    - stepset runs a shell script once, in the launcher. The shell script must start mpirun. Otherwise the job would
      have only one process.
    - mpirun starts any other script once for each rank. The script must not start mpirun. Otherwise each rank would
      start all ranks.

    A script outside `directory` is not checked, because the script may be part of the image.

    Args:
        directory: the directory of the job's code.
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
    """Returns the content of a script, or None if the file is missing or is not a script."""
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
