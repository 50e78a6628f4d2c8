"""The `stepset` program: assembles the commands, and converts errors to exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import stepset
from stepset.cli.arguments.job_args import ProgramCommand
from stepset.cli.commands import deletion, jobs, listing, render, run, runs
from stepset.cli.output.errors import report
from stepset.cli.output.terminal import replace_closed_streams
from stepset.errors import StepsetError
from stepset.exit_code import ExitCode

# click's base of usage errors, found through a public subclass: typer 0.29 contains a copy of click, older ones do not.
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

_EPILOG = """
Exit codes: 0 success, 1 the training failed, 2 bad input, 3 infrastructure, 4 timed out, 130 interrupted.
"""

_ABOUT_RUNS = (
    listing.list_,
    runs.status,
    runs.logs,
    runs.wait,
    runs.cancel,
    runs.diagnose,
    deletion.delete,
    deletion.prune,
)


def build() -> Any:
    """Returns the program with all its commands, as click's command."""
    app = typer.Typer(
        name="stepset",
        rich_markup_mode=None,  # with it, --help would import rich
        pretty_exceptions_enable=False,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_EPILOG,
    )
    app.callback(invoke_without_command=True)(_main_options)
    for command in (run.run, jobs.explain, jobs.validate, render.render):
        app.command(cls=ProgramCommand)(command)
    app.command()(jobs.schema)
    app.command()(render.rbac)
    for command in _ABOUT_RUNS:
        app.command(command.__name__.rstrip("_"))(command)
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stepset {stepset.__version__}")
        raise typer.Exit()


def _main_options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A distributed training run as one command.

    \b
    Run a script as 2 nodes with 2 processes each, on this machine:
      stepset run train.py --nodes 2 --procs-per-node 2 -- --epochs 3
    Show the variables of every pod, and why they are set:
      stepset explain train.py --nodes 2
    Query a run from another shell:
      stepset list
      stepset status NAME
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def call(command: Any, argv: Sequence[str] | None = None) -> int:
    """Runs one command of the program, as `stepset.cli.main` does."""
    replace_closed_streams()
    try:
        code = command.main(args=None if argv is None else list(argv), prog_name="stepset", standalone_mode=False)
    except _ClickError as error:
        return report(error, _usage(error, command, argv or sys.argv[1:]), ExitCode.BAD_INPUT)
    except StepsetError as error:
        return report(error, str(error), error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return report(error, f"{place}{error.strerror or error}", ExitCode.INFRASTRUCTURE)
    except (KeyboardInterrupt, typer.Abort) as error:
        return report(error, "interrupted", ExitCode.INTERRUPTED)
    return int(code or 0)


def _usage(error: Any, command: Any, words: Sequence[str]) -> str:
    """A usage error in one line that names the matching help."""
    message = " ".join(error.format_message().split()).rstrip(".")
    # Not every usage error has a reference to its command.
    used = command.commands.get(words[0]) if words else None
    unknown_option = hasattr(error, "possibilities")
    hint = "; the program's own options go after --" if unknown_option and isinstance(used, ProgramCommand) else ""
    return f"{message}{hint}; see 'stepset{f' {words[0]}' if used else ''} --help'"
