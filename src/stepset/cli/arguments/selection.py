"""Selects the runs that a command stops or deletes: by their names, or by `--job` and `--selector`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.completion import job_names

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus

Job = Annotated[
    str | None,
    typer.Option(
        "--job", metavar="NAME", help="Instead of names: all runs of the job of this name.", autocompletion=job_names
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "--selector",
        "-l",
        metavar="LABELS",
        help="Instead of names: all runs with these labels, such as team=vision,!debug.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation on a terminal.")]


@dataclass(frozen=True)
class Selection:
    """The runs of a job, the runs with given labels, or the runs that satisfy both conditions."""

    job: str | None
    selector: str

    def __str__(self) -> str:
        job = "" if self.job is None else f" of job {self.job}"
        return f"{job} with labels {self.selector}" if self.selector else job

    def check(self, names: Sequence[str]) -> None:
        """Raises BadInputError unless either names or conditions are given."""
        from stepset.errors import BadInputError

        selects = self.job is not None or bool(self.selector)
        if names and selects:
            raise BadInputError("give either the names of runs, or --job NAME or -l LABELS")
        if not names and not selects:
            raise BadInputError("give the names of runs ('stepset list' shows the names), --job NAME or -l LABELS")

    def runs(self, backend: Backend) -> list[RunStatus]:
        """Returns the selected runs, the newest first.

        Raises:
            BadInputError: the label selector is invalid.
            RunNotFoundError: no run is selected.
        """
        from stepset.backends.base import runs_of_job
        from stepset.errors import RunNotFoundError
        from stepset.run_filter import RunFilter

        runs = backend.list() if self.job is None else runs_of_job(backend, self.job)
        found = RunFilter(selector=self.selector).select(runs, "--selector")
        if not found:
            raise RunNotFoundError(f"--selector: there is no run{self} in {backend.place}")
        return found


def can_ask() -> bool:
    """Returns whether a user can answer a question on the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(verb: str, done: str, runs: Sequence[RunStatus], which: str = "") -> bool:
    """Asks the user for confirmation. If there is no terminal or no run, returns True and does not ask.

    Args:
        verb: what happens to the runs, such as `delete`.
        done: the past tense of the verb.
        which: the end of the question, such as ` of job digits`.
    """
    from stepset.cli.output.terminal import print_line, print_message
    from stepset.printable import printable
    from stepset.watch.present.sentences import counted

    if not runs or not can_ask():
        return True
    for run in runs:
        print_message(printable(run.name))
    sys.stderr.write(f"stepset: {verb} {counted(len(runs), 'run')}{printable(which)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print_line(f"{done} nothing")
    return False
