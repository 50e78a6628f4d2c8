"""Commands about one existing run: `stepset status`, `logs`, `wait`, `cancel` and `diagnose`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import Output, RunName
from stepset.exit_code import ExitCode

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


@takes_backend
def status(
    name: RunName,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show every change until the run is over.")] = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Show the state of a run, with a row for each rank.

    \b
    Examples:
      stepset status digits
      stepset status digits --watch
      stepset status digits -o json

    On a terminal, --watch shows the state again in place; elsewhere it prints a line, or with -o json a document, for
    each change.
    """
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json")
    backend = backend_args.open_backend()
    found = backend.status(name)
    if watch:
        from stepset.cli.output.watching import watch_run

        watch_run(found, lambda: backend.status(found.name), output)
    elif output == "json":
        write_out(as_json(run_document(found)))
    else:
        from stepset.cli.output.status_page import status_page

        write_out(status_page(found))
    return 0


@takes_backend
def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run is over.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Only these ranks, such as 0,2 or 0-3 or launcher; default: all."),
    ] = None,
    tail: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the last N lines; default: all.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only lines printed in this time, such as 30s or 10m.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time (RFC 3339).")] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="The attempt before the last restart; default: all attempts.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the lines as the ranks did, without prefixes such as [rank 0].")
    ] = False,
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
    """
    from stepset.backends.base import LogSelection
    from stepset.cli.output.formats import time_before_now
    from stepset.cli.output.log_lines import check_sources, print_logs, print_selected, sources_of
    from stepset.errors import BadInputError

    if follow and previous:
        raise BadInputError("--previous: the previous attempt is over; leave out --follow")
    wanted = None if ranks is None else sources_of(ranks)
    first = None if since is None else time_before_now("--since", since)
    backend = backend_args.open_backend()
    if wanted is not None:
        check_sources(wanted, backend.status(name))
    if first is None and tail is None and not previous and not timestamps:
        print_logs(backend, name, follow=follow, sources=wanted, raw=raw)
    else:
        selection = LogSelection(wanted, first, tail, previous, follow)
        print_selected(backend, name, selection, raw=raw, timestamps=timestamps)
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
    """Wait until a run is over; the exit code is that of `stepset run`.

    \b
    Example:
      stepset wait digits --timeout 10m
    """
    from stepset.cli.output.formats import check_format, seconds_of

    check_format(output, "text", "json")
    found = backend_args.open_backend().wait(name, None if timeout is None else seconds_of("--timeout", timeout))
    _print_outcome(found, backend_args, output)
    return int(found.exit_code if found.phase.final else ExitCode.TIMED_OUT)


@takes_backend
def cancel(
    name: RunName,
    now: Annotated[bool, typer.Option("--now", help="Kill the ranks instead of giving them time to end.")] = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Stop a run, and wait until it is over.

    \b
    Examples:
      stepset cancel digits
      stepset cancel digits --now
    """
    from stepset.cli.output.formats import check_format
    from stepset.cli.output.terminal import print_message
    from stepset.printable import printable

    check_format(output, "text", "json")
    backend = backend_args.open_backend()
    before = backend.cancel(name)  # also of a lost run, whose ranks may still be running
    if before.phase.final:
        print_message(printable(f"stepset: {before.name} is already over: {before.phase.value}"))
        if output == "json":
            _print_outcome(before, backend_args, output)
        return 0
    if now:
        backend.cancel(before.name)
    _print_outcome(backend.wait(before.name), backend_args, output)
    return 0


@takes_backend
def diagnose(name: RunName, output: Output = "text", *, backend_args: BackendArgs) -> int:
    """Explain why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    Shows which rank failed first, how, and its last lines. The exit code is that of `stepset run`; 0 until the run is
    over.
    """
    from stepset.cli.output.formats import check_format

    check_format(output, "text", "json")
    found = backend_args.open_backend().status(name)
    _print_outcome(found, backend_args, output)
    return int(found.exit_code) if found.phase.final else 0


def _print_outcome(found: RunStatus, backend_args: BackendArgs, output: str) -> None:
    """Prints how a run ended to stderr or, with `json`, the run to stdout."""
    from stepset.cli.output.documents import run_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import print_message, wants_colour, write_out

    if output == "json":
        write_out(as_json(run_document(found)))
    else:
        print_message(outcome(found, wants_colour(sys.stderr), backend_args.as_flags))
