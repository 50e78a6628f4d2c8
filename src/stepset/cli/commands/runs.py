"""Commands about existing runs: `stepset status`, `logs`, `wait`, `cancel`, `list` and `diagnose`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.where import Where, takes_where
from stepset.cli.completion import run_names
from stepset.errors import ExitCode

if TYPE_CHECKING:
    from stepset.watch.state import RunStatus

RunName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A run's name, or a job's: its newest run.",
        autocompletion=run_names,
        show_default=False,
    ),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")]


@takes_where
def status(name: RunName, output: Output = "text", *, where: Where) -> int:
    """Show the state of a run, with a row for each rank.

    \b
    Examples:
      stepset status digits
      stepset status digits -o json
    """
    from stepset.cli.output.formats import as_json, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json")
    found = where.opened().status(name)
    if output == "json":
        write_out(as_json(found.to_dict()))
        return 0
    from stepset.cli.output.status_page import status_page

    write_out(status_page(found))
    return 0


@takes_where
def list_(output: Output = "text", *, where: Where) -> int:
    """List the known runs, the newest first.

    \b
    Examples:
      stepset list
      stepset list -o json
    """
    from stepset.cli.output.formats import as_json, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json")
    found = sorted(where.opened().list(), key=lambda run: run.created, reverse=True)
    if output == "json":
        write_out(as_json([run.to_dict() for run in found]))
        return 0
    from stepset.cli.output.status_page import list_page

    write_out(list_page(found))
    return 0


@takes_where
def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run is over.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Only these, such as 0,2 or 0-3 or launcher; default: all."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Without the [rank 0] before each line.")] = False,
    *,
    where: Where,
) -> int:
    """Print what the ranks printed.

    \b
    Examples:
      stepset logs digits
      stepset logs digits -f --ranks 0,2
      stepset logs digits --ranks 0 --raw > rank-0.log
    """
    from stepset.cli.output.log_lines import check_sources, print_logs, sources_of

    wanted = None if ranks is None else sources_of(ranks)
    backend = where.opened()
    if wanted is not None:
        check_sources(wanted, backend.status(name))
    print_logs(backend, name, follow=follow, sources=wanted, raw=raw)
    return 0


@takes_where
def wait(
    name: RunName,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after this long (exit code 4), such as 90s or 10m.")
    ] = None,
    *,
    where: Where,
) -> int:
    """Wait until a run is over; exits as `stepset run` would have.

    \b
    Example:
      stepset wait digits --timeout 10m
    """
    from stepset.cli.output.formats import seconds_of

    found = where.opened().wait(name, None if timeout is None else seconds_of("--timeout", timeout))
    _print_outcome(found, where)
    return int(found.exit_code if found.phase.final else ExitCode.TIMED_OUT)


@takes_where
def cancel(
    name: RunName,
    now: Annotated[bool, typer.Option("--now", help="Kill the ranks instead of giving them time to end.")] = False,
    *,
    where: Where,
) -> int:
    """Stop a run, and wait until it is over.

    \b
    Examples:
      stepset cancel digits
      stepset cancel digits --now
    """
    from stepset.cli.output.terminal import print_message

    backend = where.opened()
    before = backend.cancel(name)  # also of a lost run, whose ranks may still be running
    if before.phase.final:
        print_message(f"stepset: {before.name} is already over: {before.phase.value}")
        return 0
    if now:
        backend.cancel(before.name)
    _print_outcome(backend.wait(before.name), where)
    return 0


@takes_where
def diagnose(name: RunName, *, where: Where) -> int:
    """Explain why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    Shows which rank failed first, how, and its last lines. Exits as the run did; with 0 while it is running.
    """
    found = where.opened().status(name)
    _print_outcome(found, where)
    return int(found.exit_code) if found.phase.final else 0


def _print_outcome(found: RunStatus, where: Where) -> None:
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import print_message, wants_colour

    print_message(outcome(found, wants_colour(sys.stderr), where.as_flags))
