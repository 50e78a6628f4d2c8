"""Assembles the commands of the program `stepset`, and converts errors to exit codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import stepset
from stepset.cli.arguments.job_args import ProgramCommand
from stepset.cli.commands import deletion, doctor, failures, init, jobs, listing, render, run, runs, stacks
from stepset.cli.commands import exec as exec_command
from stepset.cli.output.terminal import replace_closed_streams, report
from stepset.errors import StepsetError
from stepset.exit_code import ExitCode

# The base class of click's usage errors. It is found through a public subclass, because typer 0.29 contains a copy of
# click. Older versions of typer import the package click.
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
    stacks.stacks,
    deletion.delete,
    deletion.prune,
    failures.failures,
)


_OTHER_TOOLS = {
    "describe": "status",
    "get": "list",
    "ps": "list",
    "ls": "list",
    "stop": "cancel",
    "kill": "cancel",
    "launch": "run",
    "submit": "run --detach",
    "rm": "delete",
    "resume": "run --resume",
    "help": "COMMAND --help",
    "version": "--version",
    "start": "run",
    "show": "status",
    "down": "cancel",
    "remove": "delete",
}
"""Names of commands in kubectl, Docker and similar tools, and names of options -> the command of stepset."""

_OTHER_OPTIONS = {
    "-n": ("--namespace",),
    "--force": ("--now", "--yes"),
    "--json": ("--output json",),
    "--lines": ("--tail",),
    "--nnodes": ("--nodes",),
    "--nproc-per-node": ("--procs-per-node",),
    "--nproc_per_node": ("--procs-per-node",),
    "--max-retries": ("--max-restarts",),
    "--retries": ("--max-restarts",),
    "--state": ("--phase",),
    "--status": ("--phase",),
    "--timeout": ("--deadline",),
    "--workdir": ("--code",),
    "--working-dir": ("--code",),
}
"""Names of options in kubectl, torchrun, Slurm and similar tools -> options of stepset. The error message names the
first of these options that the command has."""

_TYPER_ERRORS = (
    (r"Input should be a valid (?:integer|number)\b.*|\S+ is not a valid integer", "not a whole number"),
    (r"Input should be greater than or equal to |\S+ is not in the range x>=", "less than "),
)
"""Patterns for messages of typer 0.29 and click about numbers -> the text that replaces the matched part."""


_SIMILAR = 0.8
"""The minimum similarity of an unknown option and a suggested one, as `difflib` defines the similarity."""
_SUMMARY = 200
"""The maximum number of characters of the summary of a command in the list of all commands."""


class _Program(TyperGroup):
    """The group of all commands. An interruption raises Abort; typer would exit without a message."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the summary of each command. On a narrow terminal, a summary is wrapped, not shortened."""
        rows = [(name, command.get_short_help_str(_SUMMARY)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


def build() -> Any:
    """Returns a command object of click that contains all commands of the program."""
    app = typer.Typer(
        name="stepset",
        cls=_Program,
        rich_markup_mode=None,  # otherwise --help would import rich
        pretty_exceptions_enable=False,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_EPILOG,
    )
    app.callback(invoke_without_command=True)(_main_options)
    for command in (run.run, jobs.explain, jobs.validate, render.render):
        app.command(cls=ProgramCommand)(command)
    app.command("exec", cls=ProgramCommand)(exec_command.exec_)
    app.command()(doctor.doctor)
    app.command()(init.init)
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
    """Run a distributed training job with one command.

    \b
    Run a script with 2 nodes and 2 processes per node on this machine:
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
    """Runs one command and returns its exit code. Reports errors on stderr."""
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
    except RuntimeError as error:
        # Before version 3.12, Python converts a KeyboardInterrupt in `__set_name__`, for example while a module is
        # imported, into a RuntimeError (python/cpython#77757).
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return report(error, "interrupted", ExitCode.INTERRUPTED)
    return int(code or 0)


def _usage(error: Any, command: Any, words: Sequence[str]) -> str:
    """Returns the message of a usage error in one line. The message contains the command that shows the help."""
    unknown_option = hasattr(error, "possibilities")
    if unknown_option and hasattr(error, "option_name"):  # typer also suggests options that are hardly similar
        error.possibilities = get_close_matches(error.option_name, error.possibilities or (), 1, _SIMILAR)
    message = " ".join(error.format_message().split()).rstrip(".")
    for pattern, text in _TYPER_ERRORS:
        message = re.sub(pattern, text, message)
    # Find the command by its name, because some usage errors contain no reference to the command.
    used = command.commands.get(words[0]) if words else None
    hint = ""
    if unknown_option and isinstance(used, ProgramCommand):
        of_run = {name for option in command.commands["run"].params for name in option.opts}
        is_of_run = error.option_name in of_run
        hint = "; it is an option of 'stepset run'" if is_of_run else "; the program's own options go after --"
    if words and words[0] in _OTHER_TOOLS and message.startswith("No such command"):
        message = f"No such command {words[0]!r}; use 'stepset {_OTHER_TOOLS[words[0]]}'"
    if unknown_option and used:
        known = {name for option in used.params for name in option.opts}
        usable = (each for each in _OTHER_OPTIONS.get(error.option_name, ()) if each.split()[0] in known)
        if option := next(usable, None):
            message = f"No such option: {error.option_name}; use {option}"
    hint = "; 'stepset list' shows the names of runs" if message == "Missing argument 'NAME'" else hint
    return f"{message}{hint}; see 'stepset{f' {words[0]}' if used else ''} --help'"
