"""The command `stepset list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import output_option
from stepset.cli.completion import job_names, phases

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus


@takes_backend
def list_(
    output: Annotated[str, output_option("text", "wide", "name", "json", show_default=False)] = "text",
    job: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only runs of the job of this name; repeatable.", autocompletion=job_names),
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHASE", help="Only runs in this phase, such as failed; repeatable.", autocompletion=phases
        ),
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="REASON", help="Only runs with this reason, such as UserError or Queued; repeatable."),
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
        str | None, typer.Option(metavar="TIME", help="Only runs created within the last TIME, such as 12h or 1d.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="On a cluster: the runs of all namespaces.")
    ] = False,
    disk_usage: Annotated[
        bool, typer.Option("--disk-usage", help="Also show the size of each run's directory; local runs only.")
    ] = False,
    *,
    backend_args: BackendArgs,
) -> int:
    """List the known runs, the newest first.

    \b
    Examples:
      stepset list
      stepset list --phase failed --since 1d
      stepset list --job digits --reason cancelled
      stepset list -l team=vision -o wide
      stepset list --backend kubernetes --all-namespaces
      stepset delete $(stepset list --phase failed -o name)

    On a terminal, the table is as wide as the terminal. If the table is too wide, stepset shortens or omits columns,
    but never shortens the names of runs. In a pipe, stepset shortens nothing. With -o wide, stepset shows all columns
    completely, and the column TASK with the Airflow task of each run (DAG.TASK, or DAG.TASK[INDEX] if it is mapped).
    """
    from stepset.cli.output.documents import run_list_document
    from stepset.cli.output.formats import as_json, time_before_now
    from stepset.cli.output.run_table import RunColumns, run_table
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.errors import BadInputError
    from stepset.printable import printable
    from stepset.run_filter import RunFilter, phases_of, reasons_of

    if all_namespaces and backend_args.namespace is not None:
        raise BadInputError("--all-namespaces: --namespace is given, too; give only one of them")
    if disk_usage and backend_args.backend != "local":
        raise BadInputError("--disk-usage: runs on a cluster have no directory; use it for local runs")
    created_after = None if since is None else time_before_now("--since", since)
    phases, reasons = phases_of(phase or (), "--phase"), reasons_of(reason or (), "--reason")
    wanted = RunFilter(phases, selector, created_after, frozenset(job or ()), reasons)
    backend = backend_args.open_backend(flags={"--all-namespaces": all_namespaces}, read_only=True)
    found = wanted.select(backend.list(all_namespaces=all_namespaces), "--selector")
    sizes = _sizes(backend, found) if disk_usage else None
    if output == "json":
        write_out(as_json(run_list_document(found, sizes)))
    elif output == "name":
        write_out("".join(f"{printable(run.name)}\n" for run in found))
    elif found:
        write_out(run_table(found, RunColumns(all_namespaces, sizes, wide=output == "wide")))
    if not found and output != "json":
        given = [
            f"{what} {text}"
            for what, texts in (("job", job), ("phase", phase), ("reason", reason))
            for text in texts or ()
        ]
        given += [f"labels {selector}"] if selector else []
        given += [f"an age below {since}"] if since is not None else []
        place = "any namespace" if all_namespaces else backend.place
        where = f"{place} with {', '.join(given)}" if given else place
        print_line(f"no runs found in {where}; {_elsewhere(backend_args, all_namespaces)}")
    return 0


def _elsewhere(backend_args: BackendArgs, all_namespaces: bool) -> str:
    """Returns advice on other backends or namespaces that may contain runs."""
    if backend_args.backend == "local":
        return "for the runs on a cluster use --backend kubernetes"
    namespaces = "" if all_namespaces else "for other namespaces use --all-namespaces, "
    return f"{namespaces}for the runs on this machine use --backend local"


def _sizes(backend: Backend, runs: list[RunStatus]) -> dict[str, int]:
    """Returns a mapping from the names of local runs to the sizes of their directories in bytes."""
    from stepset.backends.local import LocalBackend

    assert isinstance(backend, LocalBackend)  # --disk-usage is rejected for another backend
    return {run.name: backend.disk_usage(run.name) for run in runs}
