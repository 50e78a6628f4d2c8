"""The commands `stepset delete` and `stepset prune`, which delete runs that have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import DryRun, Output
from stepset.cli.arguments.selection import Job, Selection, Selector, Yes, can_ask, confirmed
from stepset.cli.completion import run_names
from stepset.exit_code import ExitCode

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus


@takes_backend
def delete(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names of runs.", autocompletion=run_names, show_default=False),
    ] = None,
    job: Job = None,
    selector: Selector = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Delete runs that have ended.

    \b
    Examples:
      stepset delete digits-1bdcdb
      stepset delete --job digits
      stepset delete -l team=vision --dry-run
      stepset delete $(stepset list --phase failed -o name)

    For a local run, stepset deletes the run's directory, which contains the logs. For a run on a cluster, stepset
    deletes the run's objects. stepset does not delete the checkpoint_dir, or other files that the training code has
    written. If one of the runs does not exist or has not ended, stepset deletes no run. If --job or -l is given
    on a terminal, the command asks for confirmation.
    """
    selection = Selection(job, selector)
    selection.check(names or ())
    backend = backend_args.open_backend()
    if names:
        found = _delete(backend, names, dry_run=dry_run)
    else:
        found = backend.delete([run.name for run in selection.runs(backend)], dry_run=True)
        if not dry_run:
            if not yes and not confirmed("delete", "deleted", found, str(selection)):
                return int(ExitCode.INTERRUPTED)
            found = _delete(backend, [run.name for run in found])
    _print_deleted(found, dry_run, output)
    return 0


def _delete(backend: Backend, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
    """Deletes runs. If one of several runs cannot be deleted, states that the others were not deleted either."""
    from stepset.cli.output.terminal import print_line
    from stepset.errors import BadInputError, RunNotFoundError

    try:
        return backend.delete(names, dry_run=dry_run)
    except (BadInputError, RunNotFoundError):
        if len(names) > 1:
            print_line("deleted nothing")
        raise


@takes_backend
def prune(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Also delete runs that ended longer ago than this, such as 7d or 12h."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete only runs that did not succeed.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Delete finished runs whose ttl has expired.

    \b
    Examples:
      stepset prune --dry-run
      stepset prune --older-than 7d --failed
      stepset prune --backend kubernetes --namespace ml

    For a local run, stepset deletes the run's directory, which contains the logs. For a run on a cluster, stepset
    deletes the run's objects. stepset does not delete the checkpoint_dir, or other files that the training code has
    written. Runs that have not ended are never deleted. If --older-than is given on a terminal, the command asks for
    confirmation.
    """
    from stepset.backends.prune import PruneRule
    from stepset.cli.output.formats import seconds_of
    from stepset.cli.output.terminal import print_line
    from stepset.watch.present.sentences import counted

    age = None if older_than is None else seconds_of("--older-than", older_than)
    backend, rule = backend_args.open_backend(), PruneRule(age, failed)
    if not (age is None or yes or dry_run) and can_ask():
        listed = backend.prune(rule, dry_run=True)
        if not confirmed("delete", "deleted", listed):
            return int(ExitCode.INTERRUPTED)
        rule = rule.limited_to(listed)
    found = backend.prune(rule, dry_run=dry_run)
    _print_deleted(found, dry_run, output)
    if age is None and not found:
        ended = backend.prune(PruneRule(1.0, failed), dry_run=True)
        # A run that has expired may remain because it cannot be deleted.
        if ended and not any(run.expired(time.time()) for run in ended):
            which = f"{'failed' if failed else 'finished'} run"
            print_line(f"note: no run has expired; --older-than 1s selects {counted(len(ended), which)}")
    return 0


def _print_deleted(runs: Sequence[RunStatus], dry_run: bool, output: str) -> None:
    from stepset.cli.output.documents import deletion_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.printable import printable
    from stepset.watch.present.sentences import counted

    if output == "json":
        write_out(as_json(deletion_document(runs, dry_run=dry_run)))
        return
    write_out("".join(f"{printable(run.name)}\n" for run in runs))
    print_line(f"{'would delete' if dry_run else 'deleted'} {counted(len(runs), 'run')}")
