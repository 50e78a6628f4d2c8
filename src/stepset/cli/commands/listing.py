"""`stepset list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


@takes_backend
def list_(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="text, wide, name or json.", show_default=False)
    ] = "text",
    phase: Annotated[
        list[str] | None, typer.Option(metavar="PHASE", help="Only runs in this phase, such as failed; repeatable.")
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            "-l",
            metavar="LABELS",
            help="Only runs with these labels, such as team=vision,!debug.",
            show_default=False,
        ),
    ] = "",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs created in this time, such as 12h or 1d.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="On a cluster: the runs of all namespaces.")
    ] = False,
    disk_usage: Annotated[
        bool, typer.Option("--disk-usage", help="Of local runs: also the size of each run's directory.")
    ] = False,
    *,
    backend_args: BackendArgs,
) -> int:
    """List the known runs, the newest first.

    \b
    Examples:
      stepset list
      stepset list --phase failed --since 1d
      stepset list -l team=vision -o wide
      stepset list --backend kubernetes --all-namespaces
      stepset delete $(stepset list --phase failed -o name)

    The table fits the terminal, or 80 columns: it shortens the program's text, never a name. With -o wide it shortens
    nothing.
    """
    from stepset.cli.arguments.run_filter import RunFilter, phases_of
    from stepset.cli.output.documents import run_list_document
    from stepset.cli.output.formats import as_json, check_format, time_before_now
    from stepset.cli.output.run_table import RunColumns, run_table
    from stepset.cli.output.terminal import print_message, write_out
    from stepset.errors import BadInputError
    from stepset.printable import printable

    check_format(output, "text", "wide", "name", "json")
    if all_namespaces and backend_args.namespace is not None:
        raise BadInputError("--all-namespaces: --namespace is given, too; give only one of them")
    if disk_usage and backend_args.backend != "local":
        raise BadInputError("--disk-usage: runs on a cluster have no directory; use it for local runs")
    created_after = None if since is None else time_before_now("--since", since)
    wanted = RunFilter(phases_of(phase or ()), selector, created_after)
    backend = backend_args.open_backend(flags={"--all-namespaces": all_namespaces})
    found = wanted.select(backend.list(all_namespaces=all_namespaces))
    sizes = _sizes(found) if disk_usage else None
    if output == "json":
        write_out(as_json(run_list_document(found, sizes)))
    elif output == "name":
        write_out("".join(f"{printable(run.name)}\n" for run in found))
    elif found:
        write_out(run_table(found, RunColumns(all_namespaces, sizes, wide=output == "wide")))
    if not found and output != "json":
        given = [f"phase {text}" for text in phase or ()] + ([f"labels {selector}"] if selector else [])
        given += [f"an age below {since}"] if since is not None else []
        place = "any namespace" if all_namespaces else backend.place
        print_message(f"stepset: no runs found in {printable(place)}{_filtered(given)}; {_elsewhere(backend_args)}")
    return 0


def _filtered(given: list[str]) -> str:
    return f" with {', '.join(given)}" if given else ""


def _elsewhere(backend_args: BackendArgs) -> str:
    """Returns where else the user can look."""
    if backend_args.backend == "local":
        return "for the runs on a cluster use --backend kubernetes"
    return "for other namespaces use --all-namespaces, for the runs on this machine --backend local"


def _sizes(runs: list[RunStatus]) -> dict[str, int]:
    """Returns name -> bytes on the disk, for local runs."""
    from stepset.backends.local import LocalBackend

    backend = LocalBackend()
    return {run.name: backend.disk_usage(run.name) for run in runs}
