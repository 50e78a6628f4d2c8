"""The flags that describe a job, shared by all commands that take one (run, explain, validate, render)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from stepset.errors import BadInputError

_AFTER_DASHES = "stepset.after_dashes"


class ProgramCommand(TyperCommand):
    """A command where every word after a bare `--` belongs to the program."""

    allow_extra_args = True  # `takes_job` refuses them with a message of its own

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sets the program's words aside before the options are parsed."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, with the program's words at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


@dataclass(frozen=True)
class JobArgs:
    """A job as given on the command line; None means not given.

    Fields without a help text of their own have the job file's name and meaning.
    """

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
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The job's name; default: made from what runs.")] = (
        None
    )
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Container image; not used locally.")] = None
    code: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of code shipped along; the ranks start in it.")
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
        typer.Option(metavar="N", help="How often the whole gang is started again after a failure; default: 0."),
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="The run fails when it takes longer, such as 90s, 30m or 12h.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Any other field of the job file, such as network.port=29501; the value is YAML, null takes the"
            " field out; repeatable.",
        ),
    ] = None
    program: tuple[str, ...] | None = None
    """The words after `--`; None where there was none."""


def takes_job(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command, whose first argument is a JobArgs, the flags of one.

    typer reads a command's flags off its signature; this puts those of JobArgs before the command's own.
    """
    hints = get_type_hints(JobArgs, include_extras=True)
    flags = {f.name: f.default for f in fields(JobArgs) if f.name != "program"}
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def with_flags(ctx: typer.Context, **values: Any) -> int:
        if ctx.args:
            raise BadInputError(f"{ctx.args[0]!r} is one word too many; the program's own arguments go after --")
        given = {name: values.pop(name) for name in flags}
        return command(JobArgs(**given, program=ctx.meta.get(_AFTER_DASHES)), **values)

    parameters = [
        parameter("ctx", typer.Context),
        *(parameter(name, hints[name], default) for name, default in flags.items()),
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
    ]
    with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect.signature
    with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_flags
