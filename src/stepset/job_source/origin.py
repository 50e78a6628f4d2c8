"""Compares the origin of a job's program with that of an earlier run whose job has the same name.

The origin is the file of the program. For functions of notebook cells, the origin is the working directory.
"""

from __future__ import annotations

import os

from stepset.backends.base import Backend
from stepset.backends.local import LocalBackend
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.errors import BadInputError, InfrastructureError
from stepset.functions.program import called_function
from stepset.run_status import RunStatus


def check_origin(
    backend: Backend, run: RunStatus, given: RecordedJob, *, named: bool, prefix: str = "", name_form: str = "name={!r}"
) -> tuple[str, ...]:
    """Checks that the run to continue executed the same script, or a function of the same file.

    If a notebook cell defines the function, its file is not known. Then the function checks that the run was started in
    the same directory. Jobs of different scripts can have the same name, because the name is derived from the function
    or the script.

    Args:
        run: the earlier run.
        given: the job of the new run.
        named: whether the caller stated the name of the job. Then a different file is only reported in a note.
        prefix: the prefix of the interface's arguments, such as `--`.
        name_form: the format string of the argument with the name of the job, without the prefix.

    Returns:
        A note, if the files or the directories differ and the caller stated the name.

    Raises:
        BadInputError: the files or the directories differ, and the caller did not state the name.
    """
    if not isinstance(backend, LocalBackend):
        return ()  # a cluster does not store the path of a script
    try:
        recorded = backend.recorded_job(run.name)
    except InfrastructureError:
        return ()  # the new run does not need the stored job
    earlier, new, did, does, here = recorded.program_file, given.program_file, "executed", "executes", "with this file"
    if not (earlier and new):
        if not all(called_function(str(job.content.get("function"))) for job in (recorded, given)):
            return ()
        earlier, new = (os.path.realpath(job.base_dir) for job in (recorded, given))
        did, does, here = "was started in", "was started in", "from this directory"
    if earlier == new:
        return ()
    if named:
        return (f"run {run.name} {did} {earlier}, this run {does} {new}",)
    raise BadInputError(
        f"{prefix}resume: the newest run of job {run.job}, {run.name}, {did} {earlier}, not {new}; to start a"
        f" separate job, pass a different {prefix}name; to continue run {run.name} {here}, pass"
        f" {prefix}{name_form.format(run.job)}"
    )
