"""Commands that delete ended runs: `stepset delete` and `prune`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import DryRun, Output
from stepset.cli.completion import run_names

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


@takes_backend
def delete(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Names of runs.", autocompletion=run_names, show_default=False),
    ],
    dry_run: DryRun = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Delete ended runs.

    \b
    Examples:
      stepset delete digits-1bdcdb
      stepset delete $(stepset list --phase failed -o name)

    Deletes what stepset created for a run: its directory with the logs, or its objects on the cluster. A checkpoint_dir
    and other files of the training code are kept. If a name is not that of a run, or a run is not over, nothing is
    deleted.
    """
    from stepset.cli.output.formats import check_format

    check_format(output, "text", "json")
    _print_deleted(backend_args.open_backend().delete(names, dry_run=dry_run), dry_run, output)
    return 0


@takes_backend
def prune(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Also delete runs that ended longer ago than this, such as 7d or 12h."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete only runs that did not succeed.")] = False,
    dry_run: DryRun = False,
    output: Output = "text",
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
    from stepset.cli.output.formats import check_format, seconds_of

    check_format(output, "text", "json")
    age = None if older_than is None else seconds_of("--older-than", older_than)
    found = backend_args.open_backend().prune(PruneRule(age, failed), dry_run=dry_run)
    _print_deleted(found, dry_run, output)
    return 0


def _print_deleted(runs: Sequence[RunStatus], dry_run: bool, output: str) -> None:
    from stepset.cli.output.documents import deletion_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import print_message, write_out
    from stepset.printable import printable
    from stepset.watch.present.sentences import counted

    if output == "json":
        write_out(as_json(deletion_document(runs, dry_run=dry_run)))
        return
    write_out("".join(f"{printable(run.name)}\n" for run in runs))
    print_message(f"stepset: {'would delete' if dry_run else 'deleted'} {counted(len(runs), 'run')}")
