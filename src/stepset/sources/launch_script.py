"""Checks that the content of a job's script fits the name of the script.

The name determines whether the script must start the ranks.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.launchers import SHELLS
from stepset.plan.starters import launcher_in, script_may_connect_nodes, starts_ranks
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI, NodeLaunched

_LIMIT = 256 * 1024
"""The maximum size of a shell script, in bytes. A larger file is a program and is not checked."""


def check_launch_script(job: TrainingJob, directory: Path) -> None:
    """Raises BadInputError if the content of the script in a job's command does not fit the name of the script.

    The name decides how stepset runs the script (`stepset.plan.starters`):

    - stepset runs a shell script once in the launcher of an MPI job, or once in each node of another job. The shell
      script must start mpirun or torchrun. Otherwise the job would have only one process, or one process in each node.
    - A launcher starts any other script once for each rank. The script must not start a launcher. Otherwise each rank
      would start all ranks.

    A script outside `directory` is not checked, because the script may be part of the image.

    Args:
        directory: the directory of the job's code.
    """
    launcher, checked = _launcher(job), job.framework
    if launcher is None or not job.command or (isinstance(checked, MPI) and checked.launch != "auto"):
        return
    per_node = not job.needs_launcher
    found = starts_ranks([*job.command, *job.args], per_node=per_node)
    name = found.name if found else job.command[0]
    if (found and found.what == "launcher") or (text := _text(directory / name)) is None:
        return
    option = f"framework: {{kind: {checked.kind}, launch: command}}"
    starts = script_may_connect_nodes(text) if per_node else launcher_in(text) is not None
    if found and not starts:
        one = "each node would run it as one process" if per_node else "it would run as one process"
        launched = [launcher, *(["--no-python"] if per_node else []), *job.command]
        raise BadInputError(
            f"command: the script {name} starts no {launcher}, so that {one}; if it is the program of each rank, write"
            f" {shlex.join(launched)}, otherwise set {option}"
        )
    if not found and _is_shell_script(text) and (own := launcher_in(text, per_node=per_node)):
        raise BadInputError(
            f"command: the script {name} starts {own} itself, and {launcher} would start it once for each rank; set"
            f" {option}"
        )


def _launcher(job: TrainingJob) -> str | None:
    """Returns the launcher that starts the ranks of a job. Returns None if the job needs no launcher."""
    if job.needs_launcher:
        return "mpirun"
    several = job.num_nodes > 1 or job.procs_per_node not in (1, "auto")
    return "torchrun" if several and isinstance(job.framework, NodeLaunched) and job.framework.node_launcher else None


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
