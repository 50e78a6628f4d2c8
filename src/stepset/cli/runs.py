"""Commands about runs that exist: `stepset status`, `logs`, `wait`, `cancel`, `list` and `diagnose`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.completion import run_names
from stepset.errors import ExitCode

if TYPE_CHECKING:
    from stepset.backends.base import Backend
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
BackendName = Annotated[str, typer.Option("--backend", metavar="NAME", help="Where the run is: local.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")]


def status(name: RunName, backend: BackendName = "local", output: Output = "text") -> int:
    """Show where a run is, with a row for each rank.

    \b
    Examples:
      stepset status digits
      stepset status digits -o json
    """
    from stepset.cli.formats import as_json, check_format
    from stepset.cli.terminal import write_out

    check_format(output, "text", "json")
    found = _backend(backend).status(name)
    if output == "json":
        write_out(as_json(found.to_dict()))
        return 0
    from stepset.cli.status_page import status_page

    write_out(status_page(found))
    return 0


def list_(backend: BackendName = "local", output: Output = "text") -> int:
    """List the known runs, the newest first.

    \b
    Examples:
      stepset list
      stepset list -o json
    """
    from stepset.cli.formats import as_json, check_format
    from stepset.cli.terminal import write_out

    check_format(output, "text", "json")
    found = sorted(_backend(backend).list(), key=lambda run: run.created, reverse=True)
    if output == "json":
        write_out(as_json([run.to_dict() for run in found]))
        return 0
    from stepset.cli.status_page import list_page

    write_out(list_page(found))
    return 0


def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Only these, such as 0,2 or 0-3 or launcher; default: all."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Without the [rank 0] before each line.")] = False,
    backend: BackendName = "local",
) -> int:
    """Print what the ranks printed.

    \b
    Examples:
      stepset logs digits
      stepset logs digits -f --ranks 0,2
      stepset logs digits --ranks 0 --raw > rank-0.log
    """
    from stepset.cli.log_lines import check_sources, print_logs, sources_of

    wanted = None if ranks is None else sources_of(ranks)
    asked = _backend(backend)
    if wanted is not None:
        check_sources(wanted, asked.status(name))
    print_logs(asked, name, follow=follow, sources=wanted, raw=raw)
    return 0


def wait(
    name: RunName,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after this long (exit code 4), such as 90s or 10m.")
    ] = None,
    backend: BackendName = "local",
) -> int:
    """Wait until a run is over; exits as `stepset run` would have.

    \b
    Example:
      stepset wait digits --timeout 10m
    """
    found = _backend(backend).wait(name, _seconds(timeout))
    _say(found)
    return int(found.exit_code if found.phase.final else ExitCode.TIMED_OUT)


def cancel(
    name: RunName,
    now: Annotated[bool, typer.Option("--now", help="Kill the ranks instead of giving them time to end.")] = False,
    backend: BackendName = "local",
) -> int:
    """Stop a run, and wait until it is over.

    \b
    Examples:
      stepset cancel digits
      stepset cancel digits --now
    """
    from stepset.cli.terminal import say

    asked = _backend(backend)
    before = asked.cancel(name)  # of a lost run too: something of it may still be running
    if before.phase.final:
        say(f"stepset: {before.name} is already over: {before.phase.value}")
        return 0
    if now:
        asked.cancel(before.name)
    _say(asked.wait(before.name))
    return 0


def diagnose(name: RunName, backend: BackendName = "local") -> int:
    """Say why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    Names who failed first, how, and its last lines. Exits as the run did; with 0 while it goes on.
    """
    found = _backend(backend).status(name)
    _say(found)
    return int(found.exit_code) if found.phase.final else 0


def _backend(name: str) -> Backend:
    from stepset.backends import backend_of

    return backend_of(name)


def _say(found: RunStatus) -> None:
    from stepset.cli.report import outcome
    from stepset.cli.terminal import say, wants_colour

    say(outcome(found, wants_colour(sys.stderr)))


def _seconds(timeout: str | None) -> float | None:
    """A duration of the command line in seconds."""
    if timeout is None:
        return None
    from stepset.errors import BadInputError
    from stepset.spec.quantity import parse_duration

    try:
        return float(parse_duration(timeout))
    except ValueError as error:
        raise BadInputError(f"--timeout: {error}") from error
