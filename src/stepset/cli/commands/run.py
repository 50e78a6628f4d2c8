"""The command `stepset run`, which starts a run, shows the output of the run, and stops the run on Ctrl-C."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.cli.arguments.run_args import output_option
from stepset.cli.completion import targets
from stepset.defaults import STARTUP_TIMEOUT
from stepset.errors import InfrastructureError
from stepset.targets.workload_kinds import TARGET_LIST_WITH_DEFAULT

if TYPE_CHECKING:
    from stepset.backends.base import Backend, RunRequest
    from stepset.backends.orphan_policy import OrphanStop
    from stepset.cli.arguments.job_input import JobInput
    from stepset.cli.output.run_display import RunDisplay
    from stepset.job_source.earlier_run import Start
    from stepset.run_status import RunStatus
    from stepset.signals import StopRequests

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@takes_job
@takes_backend
def run(
    args: JobArgs,
    *,
    backend_args: BackendArgs,
    kind: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="KIND",
            help=f"On a cluster: {TARGET_LIST_WITH_DEFAULT}.",
            autocompletion=targets,
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            "--rank",
            metavar="LIST",
            help="On a cluster: read and show only these ranks, such as 0-3 or launcher.",
        ),
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
    on_orphan: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If this process ends without ending the run: keep the run (default on a cluster), or stop it when"
            " the pod of this process has ended.",
            show_default=False,
        ),
    ] = None,
    run_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The run's name; default: the job's name with a suffix.", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue an earlier run: TARGET is the name of the run or of its job; default: the last run.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Ignore existing checkpoints (STEPSET_RESUME_FROM), without deleting them."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the run's name and return at once; the run continues.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="After a failure, also show the lines of launchers and stopped ranks.")
    ] = False,
    output: Annotated[str, output_option("text", "json", text="text; or json: the final status on stdout.")] = "text",
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

    Flags replace fields of the job file. The arguments after -- are passed to the program. The output of the ranks is
    written to stdout. Messages of stepset are written to stderr. Ctrl-C stops the run. A second Ctrl-C kills the run at
    once.
    """
    from stepset.cli.arguments.on_orphan import orphan_stop
    from stepset.log_sources import sources_of

    timeout_flags = {"--admission-timeout": admission_timeout, "--startup-timeout": startup_timeout}
    flags = {"--target": kind, "--ranks": ranks, "--queue": args.queue_name, **timeout_flags}
    timeouts = _timeouts(timeout_flags, detached_on_cluster=detach and backend_args.backend != "local")
    sources = None if ranks is None else sources_of(ranks, "--ranks")
    orphan = orphan_stop(on_orphan, backend_args.backend, detach=detach)
    backend = backend_args.open_backend(flags=flags, target=kind, sources=sources, **timeouts)
    given, start = _given(args, backend, resume=resume, fresh=fresh)
    start = replace(start, name=run_name)
    if detach:
        return _submit(given, start, backend, backend_args, output)
    how = _Shown(lines_to_stderr=output == "json", verbose=verbose)
    status = _run(given, start, backend, backend_args, orphan, how)
    if output == "json":
        from stepset.cli.output.documents import run_document
        from stepset.cli.output.formats import as_json
        from stepset.cli.output.terminal import write_out

        write_out(as_json(run_document(status)))
    return int(status.exit_code)


def _timeouts(flags: Mapping[str, str | None], *, detached_on_cluster: bool) -> dict[str, Any]:
    """Returns a mapping from fields of ClusterOptions to seconds, for the flags that are given.

    Raises BadInputError if a value is not a duration. Also raises BadInputError if a timeout is given for a detached
    run on a cluster, because no process would enforce the timeout.
    """
    from stepset.backends.unattended import unenforced_timeout
    from stepset.cli.output.formats import seconds_of

    given = {flag: seconds_of(flag, text) for flag, text in flags.items() if text is not None}
    if given and detached_on_cluster:
        raise unenforced_timeout(next(iter(given)), "with --detach", "leave one of them out")
    return {flag.removeprefix("--").replace("-", "_"): seconds for flag, seconds in given.items()}


def _given(args: JobArgs, backend: Backend, *, resume: bool, fresh: bool) -> tuple[JobInput, Start]:
    """Returns the job and the `Start` of the run. If `resume` is true, the run continues an earlier run."""
    from stepset.cli.arguments.job_input import read_job
    from stepset.job_source.earlier_run import Start, check_exclusive, fresh_job

    check_exclusive(resume, fresh, "--")
    if resume:
        from stepset.cli.arguments.resume import resumed_input

        return resumed_input(args, backend)
    given = read_job(args)
    return (replace(given, job=fresh_job(given.job, time.time_ns())) if fresh else given), Start()


def _request(given: JobInput, start: Start, backend_args: BackendArgs) -> RunRequest:
    """Reads the files of the job and returns the request to run it.

    Prints the notes about the framework, and about shell variables that a run on a cluster does not receive.
    """
    from stepset.backends.base import RunRequest
    from stepset.cli.init.framework_note import framework_note
    from stepset.cli.output.terminal import print_line
    from stepset.sources import read_sources

    note = framework_note(given)
    notes = [*given.notes, *(() if note is None else (note,))]
    if backend_args.backend != "local":
        from stepset.backends.kubernetes.submit.shell_variables import unpassed_variables

        notes += unpassed_variables(given.job, os.environ, "cli")
    for note in notes:
        print_line(f"note: {note}")
    sources = read_sources(given.job, given.base_dir)
    return RunRequest(given.job, sources, start.name, start.attempt, start.continues, start.function_file)


def _submit(given: JobInput, start: Start, backend: Backend, backend_args: BackendArgs, output: str) -> int:
    """Creates the run without waiting for it."""
    from stepset.cli.arguments.standard_input import unread
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.printable import printable

    lost = unread(given.job)
    made = backend.submit(_request(given, start, backend_args))
    write_out(as_json(run_document(made)) if output == "json" else f"{printable(made.name)}\n")
    for note in (*made.notes, *([lost] if lost else ())):
        print_line(f"note: {note}")
    return 0


@dataclass(frozen=True)
class _Shown:
    """Settings for the output of the ranks.

    Args:
        lines_to_stderr: whether the lines of the ranks are written to stderr instead of stdout.
        verbose: whether the lines of launchers and stopped ranks are shown after a failure.
    """

    lines_to_stderr: bool
    verbose: bool


def _run(
    given: JobInput,
    start: Start,
    backend: Backend,
    backend_args: BackendArgs,
    orphan: OrphanStop | None,
    how: _Shown,
) -> RunStatus:
    """Runs the job, waits until the run is finished, and prints the outcome."""
    from stepset.cli.arguments.resume import resume_command
    from stepset.cli.arguments.standard_input import standard_input, unread
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.run_display import RunDisplay
    from stepset.cli.output.terminal import binary, close_stdout, is_terminal, print_line, print_message, wants_colour
    from stepset.signals import StopRequests, on_signals

    if backend_args.backend != "local" and (note := unread(given.job)):
        print_line(f"note: {note}")
    request = _request(given, start, backend_args)
    lines = sys.stderr if how.lines_to_stderr else sys.stdout
    terminal = is_terminal(lines) or is_terminal(sys.stderr)
    requests = StopRequests()
    request = replace(request, stdin=standard_input(given.job), orphan=orphan, stopping=requests.exist)
    display = RunDisplay(
        binary(lines),
        binary(sys.stderr),
        lines_terminal=is_terminal(lines),
        messages_terminal=is_terminal(sys.stderr),
        colour=wants_colour(lines),
        verbose=how.verbose,
        flags=backend_args.as_flags,
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
        if not how.lines_to_stderr:
            close_stdout()
        if not _reader_closed(display.error, terminal):
            reason = f"the output cannot be written: {display.error.strerror}; the run was stopped"
            raise InfrastructureError(reason) from display.error
    resume = resume_command(status)
    shown = display.without_shown_lines(status)
    print_message(outcome(shown, wants_colour(sys.stderr), backend_args.as_flags, resume))
    return status


def _reader_closed(error: OSError, terminal: bool) -> bool:
    """Returns whether the cause of a write error is that the reader has closed the pipe or the terminal."""
    return isinstance(error, BrokenPipeError) or (terminal and error.errno == errno.EIO)


def _on_signal(requests: StopRequests, display: RunDisplay) -> None:
    """Handles SIGINT, SIGTERM and SIGHUP. The first signal stops the run gracefully. A second signal kills the run."""
    count = requests.add()
    display.drop_lines_when_full()
    display.show_message("stopping the run; a second signal kills it at once" if count == 1 else "killing the run")
