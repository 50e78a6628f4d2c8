"""Commands about existing runs: `stepset status`, `logs`, `wait`, `cancel`, `list`, `prune` and `diagnose`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.completion import run_names
from stepset.exit_code import ExitCode

if TYPE_CHECKING:
    from stepset.run_status import RunStatus

RunName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of a run, or of a job for its newest run.",
        autocompletion=run_names,
        show_default=False,
    ),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")]


@takes_backend
def status(name: RunName, output: Output = "text", *, backend_args: BackendArgs) -> int:
    """Show the state of a run, with a row for each rank.

    \b
    Examples:
      stepset status digits
      stepset status digits -o json
    """
    from stepset.cli.output.formats import as_json, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json")
    found = backend_args.open_backend().status(name)
    if output == "json":
        write_out(as_json(found.to_dict()))
        return 0
    from stepset.cli.output.status_page import status_page

    write_out(status_page(found))
    return 0


@takes_backend
def list_(output: Output = "text", *, backend_args: BackendArgs) -> int:
    """List the known runs, the newest first.

    \b
    Examples:
      stepset list
      stepset list -o json
    """
    from stepset.cli.output.formats import as_json, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json")
    found = sorted(backend_args.open_backend().list(), key=lambda run: run.created, reverse=True)
    if output == "json":
        write_out(as_json([run.to_dict() for run in found]))
        return 0
    from stepset.cli.output.status_page import list_page

    write_out(list_page(found))
    return 0


@takes_backend
def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run is over.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Only these ranks, such as 0,2 or 0-3 or launcher; default: all."),
    ] = None,
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
      stepset logs digits --ranks 0 --raw > rank-0.log
    """
    from stepset.cli.output.log_lines import check_sources, print_logs, sources_of

    wanted = None if ranks is None else sources_of(ranks)
    backend = backend_args.open_backend()
    if wanted is not None:
        check_sources(wanted, backend.status(name))
    print_logs(backend, name, follow=follow, sources=wanted, raw=raw)
    return 0


@takes_backend
def wait(
    name: RunName,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop waiting after this time (exit code 4), such as 90s or 10m.")
    ] = None,
    *,
    backend_args: BackendArgs,
) -> int:
    """Wait until a run is over; the exit code is that of `stepset run`.

    \b
    Example:
      stepset wait digits --timeout 10m
    """
    from stepset.cli.output.formats import seconds_of

    found = backend_args.open_backend().wait(name, None if timeout is None else seconds_of("--timeout", timeout))
    _print_outcome(found, backend_args)
    return int(found.exit_code if found.phase.final else ExitCode.TIMED_OUT)


@takes_backend
def cancel(
    name: RunName,
    now: Annotated[bool, typer.Option("--now", help="Kill the ranks instead of giving them time to end.")] = False,
    *,
    backend_args: BackendArgs,
) -> int:
    """Stop a run, and wait until it is over.

    \b
    Examples:
      stepset cancel digits
      stepset cancel digits --now
    """
    from stepset.cli.output.terminal import print_message
    from stepset.printable import printable

    backend = backend_args.open_backend()
    before = backend.cancel(name)  # also of a lost run, whose ranks may still be running
    if before.phase.final:
        print_message(printable(f"stepset: {before.name} is already over: {before.phase.value}"))
        return 0
    if now:
        backend.cancel(before.name)
    _print_outcome(backend.wait(before.name), backend_args)
    return 0


@takes_backend
def prune(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Also delete runs that ended longer ago than this, such as 7d or 12h."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete only runs that did not succeed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs, and delete nothing.")] = False,
    *,
    backend_args: BackendArgs,
) -> int:
    """Delete ended runs whose ttl is over.

    \b
    Examples:
      stepset prune --dry-run
      stepset prune --older-than 7d --failed
      stepset prune --backend kubernetes --namespace ml

    Deletes what stepset created for a run: its directory with the logs, or its objects on the cluster. A checkpoint_dir
    and other files of the training code are kept, and so are runs that are not over.
    """
    from stepset.backends.prune import PruneRule
    from stepset.cli.output.formats import seconds_of
    from stepset.cli.output.terminal import print_message, write_out
    from stepset.printable import printable
    from stepset.watch.present.sentences import counted

    age = None if older_than is None else seconds_of("--older-than", older_than)
    found = backend_args.open_backend().prune(PruneRule(age, failed), dry_run=dry_run)
    write_out("".join(f"{printable(run.name)}\n" for run in found))
    print_message(f"stepset: {'would delete' if dry_run else 'deleted'} {counted(len(found), 'run')}")
    return 0


@takes_backend
def diagnose(name: RunName, *, backend_args: BackendArgs) -> int:
    """Explain why a run failed, and what to do.

    \b
    Example:
      stepset diagnose digits

    Shows which rank failed first, how, and its last lines. The exit code is that of `stepset run`; 0 until the run is
    over.
    """
    found = backend_args.open_backend().status(name)
    _print_outcome(found, backend_args)
    return int(found.exit_code) if found.phase.final else 0


def _print_outcome(found: RunStatus, backend_args: BackendArgs) -> None:
    from stepset.cli.output.outcome import outcome
    from stepset.cli.output.terminal import print_message, wants_colour

    print_message(outcome(found, wants_colour(sys.stderr), backend_args.as_flags))
