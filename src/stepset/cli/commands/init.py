"""The command `stepset init`."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Annotated

import typer

from stepset.errors import BadInputError

_LIMIT = 4 * 1024 * 1024
"""The maximum size of a script in bytes."""


def init(
    script: Annotated[
        str | None, typer.Argument(metavar="SCRIPT", help="The training script (.py).", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The job file to write; default: job.yaml.", show_default=False)
    ] = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="A module of this directory, not a script.")
    ] = None,
    num_nodes: Annotated[
        int, typer.Option("--nodes", "--num-nodes", "-n", metavar="N", min=1, help="Nodes of the training world.")
    ] = 2,
    procs_per_node: Annotated[
        int, typer.Option("--procs-per-node", "-p", metavar="N", min=1, help="Processes per node.")
    ] = 1,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing FILE.")] = False,
) -> int:
    """Write a commented job file for a script or a module.

    \b
    Examples:
      stepset init train.py
      stepset init train.py jobs/train.yaml --nodes 4 --procs-per-node 8
      stepset init -m trainer.main train.yaml

    The command detects the framework from the imports of the program. The command does not execute the program. The new
    job file passes stepset validate. The command overwrites an existing file only with --force.
    """
    import shlex

    from stepset.cli.arguments.job_args import JobArgs
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.init.detect import detect
    from stepset.cli.init.job_file import job_file_text, module_lines, script_lines
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.printable import printable

    if module is not None:
        if file is not None:
            raise BadInputError(f"{script} and --module are given; give only one of them")
        script, file = _file_of(module), script
    elif script is None:
        raise BadInputError("the program is missing; give a script (train.py), or -m MODULE")
    file = file or "job.yaml"
    if not file.lower().endswith((".yaml", ".yml")):
        raise BadInputError(f"{file}: not the name of a job file; end it with .yaml")
    if not script.lower().endswith(".py"):
        raise BadInputError(f"{script}: not a script; give the training script (.py)")
    place = Path(os.path.realpath(file)).parent
    if not place.is_dir():
        raise BadInputError(f"{file}: cannot be written: {place} is not a directory; check the path")
    # Check the flags with the same function as `stepset run`, so the new job file is valid.
    target = None if module else script
    read_job(JobArgs(target=target, module=module, num_nodes=str(num_nodes), procs_per_node=str(procs_per_node)))
    detected = detect(_parsed(script))
    if module is not None:
        program = module_lines(module, os.path.relpath(os.path.realpath("."), place))
    else:
        program = script_lines(os.path.relpath(os.path.realpath(script), place))
    text = job_file_text(program, detected, num_nodes, procs_per_node)
    notes = _notes(text, place, file)
    _write(file, text, force)
    why = f"{script} imports {detected.module}" if detected.module else f"{script} imports no known framework"
    word = printable(shlex.quote(file))
    write_out(
        f"wrote {printable(file)}: framework {detected.framework}, because {printable(why)}\n"
        f"next: stepset validate {word}; stepset run {word}\n"
    )
    for note in notes:
        print_line(f"note: {note}")
    return 0


def _file_of(module: str) -> str:
    """Returns the path of the file that `python -m` executes for a module in the current directory."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise BadInputError(f"--module: {module!r} is not the name of a module; give a name such as trainer.main")
    path = module.replace(".", "/")
    found = next((file for file in (f"{path}.py", f"{path}/__main__.py") if Path(file).is_file()), None)
    if found is None:
        raise BadInputError(f"--module: there is neither {path}.py nor {path}/__main__.py in {Path.cwd()}")
    return found


def _parsed(script: str) -> ast.Module:
    from stepset.sources.regular_file import ChangedError, read_regular

    try:
        content = read_regular(Path(os.path.realpath(script)), _LIMIT)
    except (OSError, ChangedError) as error:
        raise BadInputError(f"{script}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if content is None:
        raise BadInputError(f"{script}: larger than {_LIMIT} bytes; give the training script")
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise BadInputError(f"{script}: {line}not readable as Python: {reason}; fix the script") from error


def _notes(text: str, place: Path, file: str) -> tuple[str, ...]:
    """Returns the notes about the files of the job. Raises BadInputError if the job file is invalid."""
    import yaml

    from stepset.frameworks import make_plan
    from stepset.sources import read_sources
    from stepset.spec import parse_job

    try:
        job = parse_job(yaml.safe_load(text))
        make_plan(job)
        return read_sources(job, place).notes
    except BadInputError as error:
        raise error.at(file) from error


def _write(file: str, text: str, force: bool) -> None:
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise BadInputError(f"{file}: exists; add --force to overwrite it, or give another FILE") from error
    except OSError as error:
        raise BadInputError(f"{file}: cannot be written: {error.strerror}; check the path") from error
