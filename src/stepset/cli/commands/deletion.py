"""The commands `stepset delete` and `stepset prune`, which delete runs that have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import DryRun, Output
from stepset.cli.completion import job_names, run_names
from stepset.exit_code import ExitCode

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal before runs are deleted.")]


@takes_backend
def delete(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names of runs.", autocompletion=run_names, show_default=False),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Delete all runs of the job of this name instead.", autocompletion=job_names),
    ] = None,
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
      stepset delete $(stepset list --phase failed -o name)

    For a local run, stepset deletes the run's directory, which contains the logs. For a run on a cluster, stepset
    deletes the run's objects. stepset does not delete the checkpoint_dir, or other files that the training code has
    written. If one of the runs does not exist or has not ended, stepset deletes no run. If --job is given on a
    terminal, the command asks for confirmation.
    """
    from stepset.cli.output.formats import check_format
    from stepset.errors import BadInputError

    check_format(output, "text", "json")
    if bool(names) is (job is not None):
        raise BadInputError("give either the names of runs, or --job NAME")
    backend = backend_args.open_backend()
    if job is None:
        found = _delete(backend, names or [], dry_run=dry_run)
    else:
        from stepset.backends.base import names_of_runs

        found = backend.delete(names_of_runs(backend, job), dry_run=True)
        if not dry_run:
            if not yes and not _confirmed(found, f" of job {job}"):
                return int(ExitCode.INTERRUPTED)
            found = _delete(backend, [run.name for run in found])
    _print_deleted(found, dry_run, output)
    return 0


def _delete(backend: Backend, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
    """Deletes runs. If one of several runs cannot be deleted, states that the others were not deleted either."""
    from stepset.cli.output.terminal import print_message
    from stepset.errors import BadInputError, RunNotFoundError

    try:
        return backend.delete(names, dry_run=dry_run)
    except (BadInputError, RunNotFoundError):
        if len(names) > 1:
            print_message("stepset: deleted nothing")
        raise


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _confirmed(runs: Sequence[RunStatus], which: str = "") -> bool:
    """Asks the user whether to delete the runs. If there is no terminal or no run, returns True and does not ask.

    Args:
        which: the end of the question, such as ` of job digits`.
    """
    from stepset.cli.output.terminal import print_message
    from stepset.printable import printable
    from stepset.watch.present.sentences import counted

    if not runs or not _can_ask():
        return True
    for run in runs:
        print_message(printable(run.name))
    sys.stderr.write(f"stepset: delete {counted(len(runs), 'run')}{printable(which)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print_message("stepset: deleted nothing")
    return False


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
    from stepset.cli.output.formats import check_format, seconds_of
    from stepset.cli.output.terminal import print_message
    from stepset.watch.present.sentences import counted

    check_format(output, "text", "json")
    age = None if older_than is None else seconds_of("--older-than", older_than)
    backend, rule = backend_args.open_backend(), PruneRule(age, failed)
    if not (age is None or yes or dry_run) and _can_ask():
        listed = backend.prune(rule, dry_run=True)
        if not _confirmed(listed):
            return int(ExitCode.INTERRUPTED)
        rule = rule.limited_to(listed)
    found = backend.prune(rule, dry_run=dry_run)
    _print_deleted(found, dry_run, output)
    if age is None and not found:
        ended = backend.prune(PruneRule(1.0, failed), dry_run=True)
        # A run that has expired may remain because it cannot be deleted.
        if ended and not any(run.expired(time.time()) for run in ended):
            which = f"{'failed' if failed else 'finished'} run"
            print_message(f"stepset: note: no run has expired; --older-than 1s selects {counted(len(ended), which)}")
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
