"""`stepset run`: starts a job, shows it, stops it on Ctrl-C, and returns its exit code."""

from __future__ import annotations

import errno
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.defaults import STARTUP_TIMEOUT
from stepset.errors import BadInputError, InfrastructureError

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.cli.arguments.job_input import JobInput
    from stepset.cli.output.run_display import RunDisplay
    from stepset.run_status import RunStatus
    from stepset.signals import StopRequests

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))

FRESH = "STEPSET_FRESH"
"""The variable with the time before which checkpoints are ignored, in nanoseconds since the epoch."""


@takes_job
@takes_backend
def run(
    args: JobArgs,
    *,
    backend_args: BackendArgs,
    kind: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="KIND", help="On a cluster: jobset (default), trainjob, statefulset, job or volcano."
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="On a cluster: read and show only these ranks, such as 0-3 or launcher."),
    ] = None,
    admission_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="On a cluster: how long a run may wait in a queue, such as 2h.")
    ] = None,
    startup_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"On a cluster: how long it may take until all pods run; default: {STARTUP_TIMEOUT // 60}m.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue an earlier run: TARGET is its name, or that of its job; default: the last run.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Ignore the checkpoints that exist now (STEPSET_RESUME_FROM); delete nothing."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the run's name and return at once; the run continues.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="After a failure, also show the lines of launchers and stopped ranks.")
    ] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="text; or json: the final status on stdout.")
    ] = "text",
) -> int:
    """Run a script or a job file, and wait for it.

    \b
    Examples:
      stepset run train.py --nodes 2 --procs-per-node 2 -- --epochs 3
      stepset run job.yaml --nodes 4 --set network.port=29501
      stepset run -m my_package.train -e LR=0.1 --max-restarts 2
      stepset run --framework mpi --nodes 2 --command -- ./solver input.dat
      stepset run job.yaml --backend kubernetes --namespace ml
      stepset run --resume digits

    Flags replace the job file's fields of the same names; the program's arguments follow --. The lines of the ranks go
    to stdout, everything else to stderr. Ctrl-C stops the run, a second Ctrl-C kills it at once.
    """
    from stepset.cli.output.formats import check_format, seconds_of
    from stepset.cli.output.log_lines import sources_of

    check_format(output, "text", "json")
    flags = {
        "--target": kind,
        "--ranks": ranks,
        "--admission-timeout": admission_timeout,
        "--startup-timeout": startup_timeout,
    }
    timeouts = {
        name: seconds_of(f"--{name.replace('_', '-')}", text)
        for name, text in (("admission_timeout", admission_timeout), ("startup_timeout", startup_timeout))
        if text is not None
    }
    sources = None if ranks is None else sources_of(ranks)
    backend = backend_args.open_backend(flags=flags, target=kind, sources=sources, **timeouts)
    given, attempt = _given(args, backend, backend_args, resume, fresh)
    if detach:
        return _submit(given, attempt, backend, output)
    status = _run(given, attempt, backend, backend_args, lines_to_stderr=output == "json", verbose=verbose)
    if output == "json":
        from stepset.cli.output.documents import run_document
        from stepset.cli.output.formats import as_json
        from stepset.cli.output.terminal import write_out

        write_out(as_json(run_document(status)))
    return int(status.exit_code)


def _given(
    args: JobArgs, backend: Backend, backend_args: BackendArgs, resume: bool, fresh: bool
) -> tuple[JobInput, int]:
    """Returns the job, and the number of the run's first attempt."""
    from stepset.cli.arguments.job_input import read_job

    if fresh:
        now = f"{FRESH}={time.time_ns()}"
        args = replace(args, env=[*(args.env or ()), now])
    if not resume:
        return read_job(args), 0
    if fresh:
        raise BadInputError("--fresh: --resume continues from the checkpoint; leave one of them out")
    from stepset.cli.arguments.resume import resumed_input

    return resumed_input(args, backend, backend_args.as_flags)


def _submit(given: JobInput, attempt: int, backend: Backend, output: str) -> int:
    """Creates the run without waiting for it."""
    from stepset.backends.base import RunRequest
    from stepset.cli.arguments.standard_input import unread
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import print_message, write_out
    from stepset.printable import printable
    from stepset.sources import read_sources

    lost = unread(given.job)
    made = backend.submit(RunRequest(given.job, read_sources(given.job, given.base_dir), attempt=attempt))
    write_out(as_json(run_document(made)) if output == "json" else f"{printable(made.name)}\n")
    for note in (*made.notes, *([lost] if lost else ())):
        print_message(printable(f"stepset: note: {note}"))
    return 0


def _run(
    given: JobInput,
    attempt: int,
    backend: Backend,
    backend_args: BackendArgs,
    *,
    lines_to_stderr: bool,
    verbose: bool,
) -> RunStatus:
    """Runs the job to its end and prints how it ended."""
    from stepset.backends.base import RunRequest
    from stepset.cli.arguments.standard_input import standard_input, unread
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.run_display import RunDisplay
    from stepset.cli.output.terminal import binary, close_stdout, is_terminal, print_message, wants_colour
    from stepset.signals import StopRequests, on_signals
    from stepset.sources import read_sources

    if backend_args.backend != "local" and (note := unread(given.job)):
        print_message(f"note: {note}")
    sources = read_sources(given.job, given.base_dir)
    request = RunRequest(given.job, sources, attempt=attempt, stdin=standard_input(given.job))
    lines = sys.stderr if lines_to_stderr else sys.stdout
    terminal = is_terminal(lines) or is_terminal(sys.stderr)
    requests = StopRequests()
    display = RunDisplay(
        binary(lines),
        binary(sys.stderr),
        lines_terminal=is_terminal(lines),
        messages_terminal=is_terminal(sys.stderr),
        colour=wants_colour(lines),
        verbose=verbose,
        on_write_error=requests.add,
    )
    with display, on_signals(_STOP_SIGNALS, lambda _: _on_signal(requests, display)):
        handle = backend.start(request, display)
        requests.attach(handle.cancel)
        try:
            status = handle.wait()
        except (KeyboardInterrupt, SystemExit):
            handle.cancel()
            handle.wait()
            raise
    if display.error is not None:
        if not lines_to_stderr:
            close_stdout()
        if not _reader_closed(display.error, terminal):
            reason = f"the output cannot be written: {display.error.strerror}; the run was stopped"
            raise InfrastructureError(reason) from display.error
    print_message(outcome(status, wants_colour(sys.stderr), backend_args.as_flags))
    return status


def _reader_closed(error: OSError, terminal: bool) -> bool:
    """Returns whether the reader closed the output: a pipe, or a terminal."""
    return isinstance(error, BrokenPipeError) or (terminal and error.errno == errno.EIO)


def _on_signal(requests: StopRequests, display: RunDisplay) -> None:
    """Handles Ctrl-C, SIGTERM or a closed terminal: the first signal stops the run with grace, the next kills it."""
    count = requests.add()
    display.drop_lines_when_full()
    display.show_message("stopping the run; a second signal kills it at once" if count == 1 else "killing the run")
