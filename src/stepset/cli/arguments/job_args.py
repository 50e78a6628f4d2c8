"""The flags that describe a job, shared by all commands that take one (run, explain, validate, render)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from stepset.cli.arguments.flags import Command, with_flags, with_signature
from stepset.errors import BadInputError

_AFTER_DASHES = "stepset.after_dashes"


class ProgramCommand(TyperCommand):
    """A command whose arguments after a bare `--` belong to the program."""

    allow_extra_args = True  # `takes_job` rejects them with a message of its own

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Removes the program's arguments before the options are parsed."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, with the program's arguments at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


@dataclass(frozen=True)
class JobArgs:
    """A job as given on the command line; None means not given."""

    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A script (.py), or a job file (.yaml, .yml, .json).")
    ] = None
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="Python module to run, as `python -m` does.")
    ] = None
    command: Annotated[bool, typer.Option("--command", help="The words after -- are the whole command to run.")] = False
    framework: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="torch (default), torchtune, deepspeed, mpi, mlx, jax, xgboost or plain."),
    ] = None
    num_nodes: Annotated[
        str | None,
        typer.Option("--nodes", "--num-nodes", "-n", metavar="N", help="Nodes of the training world; default: 1."),
    ] = None
    procs_per_node: Annotated[
        str | None,
        typer.Option("--procs-per-node", "-p", metavar="N", help="Processes per node: a number, auto, cpu or gpu."),
    ] = None
    gpus: Annotated[str | None, typer.Option(metavar="N", help="GPUs of each node; default: none.")] = None
    cpus: Annotated[str | None, typer.Option(metavar="N", help="CPU cores of each node, such as 4 or 500m.")] = None
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of each node, such as 16Gi.")] = None
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The job's name; default: made from the program.")
    ] = None
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Container image; not used locally.")] = None
    code: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of code to ship with the job; the ranks start in it.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable for every process; repeatable."),
    ] = None
    checkpoint_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory for checkpoints (STEPSET_CHECKPOINT_DIR).")
    ] = None
    max_restarts: Annotated[
        str | None,
        typer.Option(metavar="N", help="How often the whole gang is restarted after a failure; default: 0."),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit of the run, such as 90s, 30m or 12h; a run that takes longer fails."
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Any other field of the job file, such as network.port=29501; the value is YAML, null removes"
            " the field; repeatable.",
        ),
    ] = None
    program: tuple[str, ...] | None = None
    """The arguments after `--`; None without `--`."""


def takes_job(command: Command) -> Command:
    """Adds the flags of JobArgs to a command whose parameter `args` is a JobArgs."""

    def with_program(ctx: typer.Context, args: JobArgs, **values: Any) -> int:
        if ctx.args:
            raise BadInputError(f"{ctx.args[0]!r} is an unexpected argument; the program's own arguments go after --")
        return command(args=replace(args, program=ctx.meta.get(_AFTER_DASHES)), **values)

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *inspect.signature(command, eval_str=True).parameters.values()]
    return with_flags(with_signature(with_program, parameters, command), "args", JobArgs)
