"""The flags that describe a job. The commands `run`, `explain`, `validate` and `render` have these flags."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from stepset.cli.arguments.flags import Command, with_flags, with_signature
from stepset.cli.completion import frameworks, resumed_names
from stepset.errors import BadInputError

_AFTER_DASHES = "stepset.after_dashes"


class ProgramCommand(TyperCommand):
    """A command that passes the arguments after `--` to the program. typer does not parse these arguments."""

    allow_extra_args = True  # `words_after_dashes` rejects extra arguments

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Removes the program's arguments from the command line, then parses the options."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage line. The last part represents the arguments of the program."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


def words_after_dashes(ctx: typer.Context) -> tuple[str, ...] | None:
    """Returns the arguments after `--`. Returns None if the command line contains no `--`.

    Raises BadInputError for an unexpected argument before `--`.
    """
    if ctx.args:
        from stepset.job_source.earlier_run import names_file  # imports pydantic, which most commands do not need

        target, script = ctx.params.get("target"), next((word for word in ctx.args if word.endswith(".py")), "")
        if script and target and not names_file(target):
            raise BadInputError(
                f"{target}: stepset itself starts Python and launchers such as torchrun; give only the script:"
                f" {ctx.command_path} {script}"
            )
        raise BadInputError(f"{ctx.args[0]!r} is an unexpected argument; the program's own arguments go after --")
    words: tuple[str, ...] | None = ctx.meta.get(_AFTER_DASHES)
    return words


@dataclass(frozen=True)
class JobArgs:
    """The flags of a command line that describe a job. If a flag is not given, its field is None."""

    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="A script (.py), or a job file (.yaml, .yml, .json).", autocompletion=resumed_names
        ),
    ] = None
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="Python module to run, as `python -m` does.")
    ] = None
    command: Annotated[bool, typer.Option("--command", help="The words after -- are the whole command to run.")] = False
    framework: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="torch (default), torchtune, deepspeed, mpi, mlx, jax, xgboost, lightgbm or plain.",
            autocompletion=frameworks,
        ),
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
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="A variable for every process; without VALUE, the value in this shell; repeatable.",
        ),
    ] = None
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="A label of the run and of its objects, for list -l; repeatable."
        ),
    ] = None
    checkpoint_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory for checkpoints (STEPSET_CHECKPOINT_DIR).")
    ] = None
    max_restarts: Annotated[
        str | None,
        typer.Option(metavar="N", help="The maximum number of restarts of the whole gang; default: 0."),
    ] = None
    hang: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="Time without progress after which a hang is reported, such as after=60s or after=60s,first=10m;"
            " after a run has paused for longer, 5 times its longest pause;"
            " action=restart or action=fail also ends the hang; off reports none;"
            " default: after=5m,first=30m,action=report.",
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit of the run, such as 90s, 30m or 12h; a run that takes longer fails."
        ),
    ] = None
    termination_grace_period: Annotated[
        str | None,
        typer.Option(
            "--termination-grace-period",
            metavar="TIME",
            help="Time after which a stopped pod or local node is killed; default: 60s, of which the ranks have 50s.",
        ),
    ] = None
    queue_name: Annotated[
        str | None,
        typer.Option(
            "--queue", "--queue-name", metavar="NAME", help="On a cluster: the Kueue LocalQueue, or Volcano queue."
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
    """The arguments after `--`. None means that the command line contains no `--`."""


def takes_job(command: Command) -> Command:
    """Adds the flags of JobArgs to a command. The command must have a parameter `args: JobArgs`."""

    def with_program(ctx: typer.Context, args: JobArgs, **values: Any) -> int:
        return command(args=replace(args, program=words_after_dashes(ctx)), **values)

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *inspect.signature(command, eval_str=True).parameters.values()]
    return with_flags(with_signature(with_program, parameters, command), "args", JobArgs)
