"""The job of `stepset run --resume`: that of an earlier run, which the new run continues."""

from __future__ import annotations

from stepset.backends.base import Backend
from stepset.backends.local import LocalBackend
from stepset.cli.arguments.job_args import JobArgs
from stepset.cli.arguments.job_input import JobInput, names_program, read_job, recorded_input
from stepset.cli.output.terminal import print_message
from stepset.errors import BadInputError, RunNotFoundError
from stepset.printable import printable
from stepset.run_status import RunStatus


def resumed_input(args: JobArgs, backend: Backend, flags: str) -> tuple[JobInput, int]:
    """Returns the job, and the attempt that follows those of the earlier run.

    TARGET is the name of a run or of a job; without one, the last run is continued. If TARGET is a script or a job
    file, the job is read from it, and the last run of the job of that name is continued.

    Args:
        args: the arguments; their flags change the job.
        backend: the backend of the runs.
        flags: `BackendArgs.as_flags`, for messages.

    Raises:
        BadInputError: the run is not over, or the job is invalid or not stored.
        RunNotFoundError: there is no such run.
    """
    if names_program(args):
        given = read_job(args)
        run = backend.status(given.job.name)
    else:
        run = _last(backend) if args.target is None else backend.status(args.target)
        if not isinstance(backend, LocalBackend):
            raise BadInputError(
                f"--resume: the cluster does not store the job of run {run.name}; give its job file or script, too:"
                f" stepset run job.yaml --resume{flags}"
            )
        recorded = backend.recorded_job(run.name)
        given = recorded_input(args, recorded.content, recorded.base_dir, run.name)
    if not run.phase.final:
        raise BadInputError(
            f"--resume: run {run.name} is not over: {run.phase.value}; stop it first: stepset cancel {run.name}{flags}"
        )
    print_message(f"stepset: continuing run {printable(run.name)}, attempt {run.attempt + 1}")
    if given.job.checkpoint_dir is None:
        print_message("stepset: note: the job has no checkpoint_dir, so the training starts from its beginning")
    return given, run.attempt + 1


def _last(backend: Backend) -> RunStatus:
    runs = backend.list()
    if not runs:
        raise RunNotFoundError(f"--resume: there is no run in {backend.place}")
    return max(runs, key=lambda run: run.created)
