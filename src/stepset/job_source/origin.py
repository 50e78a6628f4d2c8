"""Compares the file of a job's program with the file of an earlier run whose job has the same name."""

from __future__ import annotations

from stepset.backends.base import Backend
from stepset.backends.local import LocalBackend
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import RunStatus


def check_origin(
    backend: Backend, run: RunStatus, given: RecordedJob, *, named: bool, prefix: str = "", name_form: str = "name={!r}"
) -> tuple[str, ...]:
    """Checks that the run to continue executed the same script, or a function of the same file.

    Jobs of different scripts can have the same name, because the name is derived from the function or the script.

    Args:
        run: the earlier run.
        given: the job of the new run.
        named: whether the caller stated the name of the job. Then a different file is only reported in a note.
        prefix: the prefix of the interface's arguments, such as `--`.
        name_form: the format string of the argument with the name of the job, without the prefix.

    Returns:
        A note, if the files differ and the caller stated the name.

    Raises:
        BadInputError: the files differ, and the caller did not state the name.
    """
    if not isinstance(backend, LocalBackend):
        return ()  # a cluster does not store the path of a script
    try:
        earlier, new = backend.recorded_job(run.name).program_file, given.program_file
    except InfrastructureError:
        return ()  # the new run does not need the stored job
    if not earlier or not new or earlier == new:
        return ()
    if named:
        return (f"run {run.name} executed {earlier}, this run executes {new}",)
    raise BadInputError(
        f"{prefix}resume: the newest run of job {run.job}, {run.name}, executed {earlier}, not {new}; to start a"
        f" separate job, pass a different {prefix}name; to continue run {run.name} with this file, pass"
        f" {prefix}{name_form.format(run.job)}"
    )
