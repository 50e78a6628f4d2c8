"""The arguments that several commands about runs share."""

from __future__ import annotations

from typing import Annotated

import typer

from stepset.cli.completion import run_names

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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and delete nothing.")]
