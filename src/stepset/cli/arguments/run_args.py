"""The arguments of several commands about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepset.cli.completion import formats, run_or_job_names
from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus

RunName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of a run, or of a job or an Airflow task (DAG.TASK) for its newest run.",
        autocompletion=run_or_job_names,
        show_default=False,
    ),
]
RunNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Names of runs, or of jobs or Airflow tasks (DAG.TASK) for their newest runs.",
        autocompletion=run_or_job_names,
        show_default=False,
    ),
]
NewestOrName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Name of a run, or of a job or an Airflow task (DAG.TASK) for its newest run; default: the newest run.",
        autocompletion=run_or_job_names,
        show_default=False,
    ),
]
"""The argument of a command that only reads a run. `run_named` returns the run."""


def output_option(*known: str, text: str = "", show_default: bool = True) -> Any:
    """Returns the option `--output` of a command that prints these formats, with completion of the formats' names.

    For another format, the command raises BadInputError.

    Args:
        text: the help text. By default, the text lists the formats.
        show_default: whether the help text shows the default format.
    """
    listed = f"{', '.join(known[:-1])} or {known[-1]}"

    def check(given: str) -> str:
        if given not in known:
            raise BadInputError(f"--output: {given!r} is not known; use {listed}")
        return given

    return typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help=text or f"{listed}.",
        show_default=show_default,
        autocompletion=formats(*known),
        callback=check,
    )


Output = Annotated[str, output_option("text", "json")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and delete nothing.")]


def run_named(backend: Backend, name: str | None) -> RunStatus:
    """Returns the status of the run that has the given name.

    If `name` is None, returns the status of the newest run, and prints the name of this run to stderr.
    """
    from stepset.backends.base import newest_run
    from stepset.cli.output.terminal import print_line

    if name is not None:
        return backend.status(name)
    name = newest_run(backend).name
    print_line(f"note: {name} is the newest run; stepset list shows all runs")
    return backend.status(name)
