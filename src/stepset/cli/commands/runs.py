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
    """Show where a run is, with a row for each rank.

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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
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
    asked = where.opened()
    if wanted is not None:
        check_sources(wanted, asked.status(name))
    print_logs(asked, name, follow=follow, sources=wanted, raw=raw)
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
    _say(found, where)
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
    from stepset.cli.output.terminal import say

    asked = where.opened()
    before = asked.cancel(name)  # of a lost run too: something of it may still be running
    if before.phase.final:
        say(f"stepset: {before.name} is already over: {before.phase.value}")
        return 0
    if now:
        asked.cancel(before.name)
    _say(asked.wait(before.name), where)
    return 0


@takes_where
def diagnose(name: RunName, *, where: Where) -> int:
    """Say why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    Names who failed first, how, and its last lines. Exits as the run did; with 0 while it goes on.
    """
    found = where.opened().status(name)
    _say(found, where)
    return int(found.exit_code) if found.phase.final else 0


def _say(found: RunStatus, where: Where) -> None:
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import say, wants_colour

    say(outcome(found, wants_colour(sys.stderr), where.said))
