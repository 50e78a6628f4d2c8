"""The commands `stepset status`, `logs`, `wait`, `cancel` and `diagnose`. Each command is about one existing run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import NewestOrName, Output, RunName, RunNames, run_named
from stepset.cli.arguments.selection import Job, Selection, Selector, Yes, confirmed
from stepset.exit_code import ExitCode

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus


@takes_backend
def status(
    name: NewestOrName = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show every change until the run is over.")] = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Show the state of a run, with a row for each rank.

    \b
    Examples:
      stepset status
      stepset status digits --watch
      stepset status digits -o json

    On a terminal, --watch updates the displayed state in place. Without a terminal, --watch prints one line for each
    change. With -o json, --watch prints a JSON object in one line for each change.
    """
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import write_out

    backend = backend_args.open_backend(read_only=True)
    found = run_named(backend, name)
    if watch:
        from stepset.cli.output.watching import watch_run

        watch_run(found, lambda: backend.status(found.name), output, backend_args.as_flags)
    elif output == "json":
        write_out(as_json(run_document(found)))
    else:
        from stepset.cli.output.status_page import status_page

        write_out(status_page(found, backend_args.as_flags))
    return 0


@takes_backend
def logs(
    name: NewestOrName = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run is over.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            "--rank",
            metavar="LIST",
            help="Only these ranks, such as 0,2 or 0-3 or launcher; default: all.",
        ),
    ] = None,
    tail: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the last N lines; default: all.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only lines printed within the last TIME, such as 30s or 10m.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time (RFC 3339).")] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Only the attempt before the last restart; default: all.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the lines without prefixes such as [rank 0].")] = False,
    *,
    backend_args: BackendArgs,
) -> int:
    """Print the output of the ranks.

    \b
    Examples:
      stepset logs digits
      stepset logs digits -f --ranks 0,2
      stepset logs digits --tail 20 --since 10m --timestamps
      stepset logs digits --ranks 0 --raw > rank-0.log

    With --follow, the command prints the outcome of the run to stderr. The command exits with code 0 even if the run
    failed. The exit code of stepset wait is the exit code of the run.
    """
    from stepset.backends.base import LogSelection
    from stepset.cli.output.formats import time_before_now
    from stepset.cli.output.log_lines import print_logs, print_selected
    from stepset.cli.output.terminal import print_line
    from stepset.errors import BadInputError
    from stepset.log_sources import check_sources, sources_of

    if follow and previous:
        raise BadInputError("--previous: the previous attempt is over; leave out --follow")
    wanted = None if ranks is None else sources_of(ranks, "--ranks")
    first = None if since is None else time_before_now("--since", since)
    backend = backend_args.open_backend(read_only=True)
    if name is None or wanted is not None or follow:
        found = run_named(backend, name)
        name = found.name  # a newer run of the job may start while this command follows the run
        check_sources(wanted or frozenset(), found, "--ranks")
    if follow:
        _show_missing_logs(backend, name, wanted, backend_args)
    if first is None and tail is None and not previous and not timestamps:
        # Without the times of the lines, reading is faster.
        printed = print_logs(backend, name, follow=follow, sources=wanted, raw=raw)
    else:
        selection = LogSelection(wanted, first, tail, previous, follow)
        printed = print_selected(backend, name, selection, raw=raw, timestamps=timestamps)
    if since is not None and tail != 0 and not (printed or follow):
        print_line(f"note: no selected lines within the last {since}")
    if not (follow or previous):  # while a run is followed, pods are deleted after their lines were printed
        _show_missing_logs(backend, name, wanted, backend_args, printed=printed)
    if follow:
        _print_end(backend, name)
    return 0


@takes_backend
def wait(
    name: RunName,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop waiting after this time (exit code 4), such as 90s or 10m.")
    ] = None,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Wait until a run is over. The exit codes are the exit codes of `stepset run`.

    \b
    Example:
      stepset wait digits --timeout 10m
    """
    from stepset.cli.output.formats import seconds_of

    backend = backend_args.open_backend(read_only=True)
    seconds = None if timeout is None else seconds_of("--timeout", timeout)
    with _interruptible("the run continues"):
        found = backend.wait(name, seconds)
    _print_outcome(found, backend_args.as_flags, output)
    return int(found.exit_code if found.phase.final else ExitCode.TIMED_OUT)


@takes_backend
def cancel(
    names: RunNames = None,
    job: Job = None,
    selector: Selector = "",
    now: Annotated[bool, typer.Option("--now", help="Kill the ranks instead of giving them time to end.")] = False,
    yes: Yes = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Stop runs, and wait until they are over.

    \b
    Examples:
      stepset cancel digits
      stepset cancel digits --now
      stepset cancel --job digits
      stepset cancel -l team=vision --backend kubernetes

    On a cluster, the command deletes the runs with their pods and logs.

    The command stops all runs before it waits. If one of the runs cannot be stopped, the command stops the other runs.
    The exit code is then the exit code of the first error. With --job or -l, the command stops the runs that have not
    ended, and asks for confirmation on a terminal. With -o json, the command prints one JSON object for each run.
    """
    from stepset.backends.base import request_stop
    from stepset.cli.output.terminal import print_line

    selection = Selection(job, selector)
    selection.check(names or ())
    flags = backend_args.as_flags
    backend = backend_args.open_backend()
    chosen = bool(names)
    if not names:
        active = [run for run in selection.runs(backend) if not run.phase.final]
        if not active:
            print_line(f"every run{selection} in {backend.place} is already over")
        if not yes and not confirmed("cancel", "cancelled", active, str(selection)):
            return int(ExitCode.INTERRUPTED)
        names = [run.name for run in active]
    errors = _ReportedErrors()
    asked: dict[str, RunStatus] = {}
    for name in names:
        with errors:
            # Two given names may select the same run, and a second request kills its ranks.
            if chosen and asked and backend.status(name).name in asked:
                continue
            before = request_stop(backend, name, kill=now)
            asked[before.name] = before
            if not before.phase.final:
                hint = "" if now else f"; stepset cancel {before.name}{flags} --now kills the ranks"
                print_line(f"run {before.name} is stopping{hint}")
    for run, before in asked.items():
        with errors, _interruptible(f"stepset wait {run}{flags} waits until the run is over"):
            found = before if before.phase.final else backend.wait(run)
            _print_cancelled(found, before, flags, output)
    return errors.code


def _print_cancelled(found: RunStatus, before: RunStatus, flags: str, output: str) -> None:
    """Prints the outcome of a run that `cancel` has stopped, or how the run had ended before."""
    from stepset.cli.output.terminal import print_line
    from stepset.run_status import FailureKind

    if before.phase.final:
        cancelled = found.failure is not None and found.failure.kind is FailureKind.CANCELLED
        how = FailureKind.CANCELLED.value if cancelled else found.phase.value
        print_line(f"{found.name} is already over: {how}")
    if not before.phase.final or output == "json":
        _print_outcome(found, flags, output)


class _ReportedErrors(AbstractContextManager[None]):
    """Prints each error of stepset that ends its block, and continues after the block.

    `code` is the exit code of the first error, or 0.
    """

    def __init__(self) -> None:
        self.code = 0

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        from stepset.cli.output.terminal import report
        from stepset.errors import StepsetError

        if not isinstance(error, StepsetError):
            return False
        code = report(error, str(error), error.exit_code)
        self.code = self.code or code
        return True


@takes_backend
def diagnose(name: NewestOrName = None, output: Output = "text", *, backend_args: BackendArgs) -> int:
    """Explain why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    The command shows which rank failed first, the last lines of this rank, and the exit code or signal with which the
    rank ended. The exit codes of the command are the exit codes of `stepset run`. While the run is not over, the exit
    code is 0.
    """
    backend = backend_args.open_backend(read_only=True)
    found = run_named(backend, name)
    _print_outcome(found, backend_args.as_flags, output)
    return int(found.exit_code) if found.phase.final else 0


def _show_missing_logs(
    backend: Backend, name: str, sources: frozenset[str] | None, backend_args: BackendArgs, *, printed: bool = False
) -> None:
    """Prints a note to stderr about logs that no longer exist, or about a run on a cluster that has no logs yet.

    If `printed` is True, lines of the run have already been printed, and the status of the run is not requested. Prints
    nothing if the cluster refuses a request, or if the run was deleted in the meantime. The note is optional.
    """
    from stepset.cli.output.terminal import print_line
    from stepset.errors import StepsetError
    from stepset.watch.present.sentences import waiting_for_pods

    with suppress(StepsetError):
        note = backend.missing_logs(name, sources)
        if not (note or printed) and backend_args.backend == "kubernetes":
            note = waiting_for_pods(backend.status(name), f"stepset status {name}{backend_args.as_flags}")
        if note:
            print_line(f"note: {note}")


@contextmanager
def _interruptible(hint: str) -> Iterator[None]:
    """Prints `hint` to stderr if Ctrl-C ends the wait for a run, and ends the program."""
    from stepset.cli.output.terminal import report

    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Exit(report(error, f"interrupted; {hint}", ExitCode.INTERRUPTED)) from error


def _print_end(backend: Backend, name: str) -> None:
    """Prints one line to stderr that states how a run ended. Prints nothing if the run no longer exists."""
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import print_message, wants_colour
    from stepset.errors import RunNotFoundError

    with suppress(RunNotFoundError):
        print_message(outcome(backend.status(name), wants_colour(sys.stderr)).partition("\n")[0])


def _print_outcome(found: RunStatus, flags: str, output: str) -> None:
    """Prints the outcome of a run to stderr. If `output` is json, prints only a JSON object to stdout."""
    from stepset.cli.arguments.resume import resume_command
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import print_line, print_message, wants_colour, write_out
    from stepset.watch.present.sentences import NOT_FINITE

    if output == "json":
        write_out(as_json(run_document(found)))
    else:
        if NOT_FINITE in found.notes:
            print_line(f"note: {NOT_FINITE}")
        print_message(outcome(found, wants_colour(sys.stderr), flags, resume_command(found)))
