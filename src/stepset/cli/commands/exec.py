"""The command `stepset exec`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.job_args import words_after_dashes
from stepset.cli.arguments.run_args import RunName
from stepset.errors import BadInputError


@takes_backend
def exec_(
    ctx: typer.Context,
    name: RunName,
    ranks: Annotated[
        str,
        typer.Option("--rank", "--ranks", metavar="RANK", help="One rank, or a pod without ranks, such as launcher."),
    ] = "0",
    *,
    backend_args: BackendArgs,
) -> int:
    """Start a command in the environment of a running rank.

    \b
    Examples:
      stepset exec digits --rank 2 -- nvidia-smi
      stepset exec digits --rank 2 -- py-spy dump --pid 17
      stepset exec digits --backend kubernetes -- bash

    The started command runs in the working directory of the rank, gets the environment variables of the rank, including
    secrets, and uses the standard streams of stepset. The exit code of stepset is the exit code of the started command.
    On a cluster, your account needs the permission that stepset rbac --with exec grants.
    """
    command = words_after_dashes(ctx)
    if not command:
        raise BadInputError("the command is missing; write it after --, such as: stepset exec NAME -- nvidia-smi")
    if not ranks:
        raise BadInputError("--rank: '' is not a rank; write it like 2, or launcher")
    source = f"rank {int(ranks)}" if ranks.isdecimal() and len(ranks) <= 9 else ranks
    return backend_args.open_backend().exec(name, source, command)
