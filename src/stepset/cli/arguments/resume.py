"""Determines the job of `stepset run --resume`, which continues an earlier run."""

from __future__ import annotations

from dataclasses import replace

from stepset.backends.base import Backend
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.cli.arguments.job_args import JobArgs
from stepset.cli.arguments.job_input import JobInput, names_program, read_job, recorded_input
from stepset.cli.output.terminal import print_line
from stepset.job_source.earlier_run import Start, continuation_notes, earlier_run, recorded_job, start_after
from stepset.job_source.origin import check_origin
from stepset.job_source.request import is_script
from stepset.run_status import RunStatus


def resumed_input(args: JobArgs, backend: Backend) -> tuple[JobInput, Start]:
    """Returns the job of the new run, and how the new run starts.

    The argument TARGET determines the earlier run:

    - If TARGET is the name of a run, the run is continued.
    - If TARGET is the name of a job, the last run of the job is continued.
    - If TARGET is a script or a job file, the job is read from this file, and the last run of the job is continued.
    - If TARGET is not given, the last run is continued.

    Args:
        args: the arguments of the command line. The flags change the job.

    Raises:
        BadInputError: the earlier run is not finished, or the job of the earlier run is invalid or not stored.
        RunNotFoundError: the earlier run does not exist.
    """
    stored = not names_program(args)
    if not stored:
        given = read_job(args)
        run = earlier_run(backend, given.job.name, "--resume")
        named = args.name is not None or not is_script(args.target)
        program = RecordedJob(given.job.to_dict(), given.base_dir)
        origin = check_origin(backend, run, program, named=named, prefix="--", name_form="name {}")
        start = start_after(run)
    else:
        run = earlier_run(backend, args.target, "--resume")
        words = "arguments after --" if args.program and not args.command else ""
        recorded = recorded_job(backend, run, "--resume", words)
        given = recorded_input(args, recorded.content, recorded.base_dir, run.name)
        origin, start = (), replace(start_after(run), function_file=recorded.function_file)
    notes = [*continuation_notes(run, given.job, stored=stored), *origin]
    if run.resumable and given.job.checkpoint_dir is None:
        notes.append(f"to continue from the checkpoint of run {run.name}, with its whole job: {resume_command(run)}")
    for note in notes:
        print_line(f"note: {note}")
    return given, start


def resume_command(run: RunStatus) -> str:
    """Returns the command that continues a run, or an empty string if there is no checkpoint to continue from."""
    return f"stepset run --resume {run.name}" if run.resumable else ""
