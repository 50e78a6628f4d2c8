"""Reads the job file or the script that the command line names. Flags change fields of the job."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepset.cli.arguments.job_args import JobArgs
from stepset.cli.arguments.overrides import (
    parse_env,
    parse_hang,
    parse_labels,
    parse_setting,
    with_field,
    with_resource,
)
from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.job_source.checkpoint_dir import absolute_in, parse_job_in
from stepset.job_source.earlier_run import JOB_FILES, names_file
from stepset.job_source.merged import merged
from stepset.plan.model import LaunchPlan
from stepset.regular_files import similar_file
from stepset.sources import absolute
from stepset.spec import TrainingJob
from stepset.spec.load import job_file_text, read_job_file
from stepset.unstructured import part

_DIGITS = 19
"""The maximum number of characters of a number in a flag. `int` rejects a number of more than 4,300 digits."""


def _number(text: str) -> int | str:
    """Converts the value of a flag to an integer. If the value is not an integer, returns the value unchanged.

    The model then reports the invalid value.
    """
    return int(text) if text.removeprefix("-").isdecimal() and len(text) <= _DIGITS else text


_FLAGS: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "num_nodes": ("--nodes", "num_nodes", _number),
    "procs_per_node": ("--procs-per-node", "procs_per_node", _number),
    "resources_per_node.gpus": ("--gpus", "gpus", _number),
    "resources_per_node.cpu": ("--cpus", "cpus", _number),
    "resources_per_node.memory": ("--memory", "memory", _number),
    "restart.max_restarts": ("--max-restarts", "max_restarts", _number),
    "scheduling.queue_name": ("--queue", "queue_name", str),
    "deadline": ("--deadline", "deadline", str),
    "termination_grace_period": ("--termination-grace-period", "termination_grace_period", str),
    "checkpoint_dir": ("--checkpoint-dir", "checkpoint_dir", lambda path: path and absolute_in(Path(), path)),
    "framework": ("--framework", "framework", str),
    "hang": ("--hang", "hang", parse_hang),
    "name": ("--name", "name", str),
    "image": ("--image", "image", str),
}
"""The fields of the job file that one flag sets, with the flag, its field of JobArgs, and the function that reads its
value."""


@dataclass(frozen=True)
class JobInput:
    """A job, and the launch plan of the job.

    Args:
        base_dir: the directory from which relative paths in the job start.
        where: the prefix of error messages: the path of the job file, the path of the script, or the name of the job.
        notes: notes for the user about the command line.
    """

    job: TrainingJob
    plan: LaunchPlan
    base_dir: Path
    where: str
    notes: tuple[str, ...] = ()


def read_job(args: JobArgs) -> JobInput:
    """Returns the job of a command line.

    Raises BadInputError if a file is unreadable, if flags are contradictory, or if the job is invalid.
    """
    file = _job_file(args)
    # Path.resolve is not used, because this method raises RuntimeError for a loop of links (Python 3.11).
    base_dir = Path(os.path.realpath(absolute(file))).parent if file else absolute(Path())
    text = job_file_text(file) if file else ""
    return _job_input(args, file, text, read_job_file(file, text) if file else {}, base_dir)


def recorded_input(args: JobArgs, content: Mapping[str, Any], base_dir: Path, run: str) -> JobInput:
    """Returns the job of an earlier run, changed by the flags of the command line. Raises the errors of `read_job`.

    Args:
        args: the arguments of the command line. The flags change the job.
        content: the recorded content of the job file.
        base_dir: the directory from which relative paths in the job start.
    """
    return replace(_job_input(replace(args, target=None), None, "", content, base_dir), where=run)


def _job_input(args: JobArgs, file: Path | None, text: str, content: Mapping[str, Any], base_dir: Path) -> JobInput:
    data = _with_flags(content, args, base_dir)
    for setting in args.settings or ():
        path, value = parse_setting(setting)
        data = with_field(data, path, value)
    try:
        job = parse_job_in(base_dir, data)
        return JobInput(job, make_plan(job), base_dir, args.target or job.name, _replaced_notes(content, data))
    except BadInputError as error:
        flagged = {field for field in data if field not in content or content[field] != data[field]}
        raise BadInputError(*(_placed(p, file, text, flagged, args) for p in error.problems)) from error


def _job_file(args: JobArgs) -> Path | None:
    """Returns the path of the job file. Returns None if the command line contains a program and no job file.

    Raises BadInputError if the command line contains neither a job file nor a program, or more than one program.
    """
    program = args.program or ()
    if args.command and not program:
        raise BadInputError("--command: the command is missing; write it after --, such as --command -- ./train 1 2")
    given = [name for name, there in (("a script", _is_script(args.target)), ("--module", args.module)) if there]
    given += ["--command"] if args.command else []
    if len(given) > 1:
        raise BadInputError(f"{' and '.join(given)} are given; give only one of them")
    if not args.target:
        if not given:
            raise BadInputError(
                "the program is missing; give a script (train.py), a job file (job.yaml), -m MODULE,"
                " or --command -- PROGRAM"
            )
        return None
    if _is_script(args.target):
        _must_exist(args.target)
        return None
    if not args.target.lower().endswith(JOB_FILES):
        raise BadInputError(
            f"{args.target}: neither a script (.py) nor a job file (.yaml, .yml, .json); for a module use -m, for any"
            " other program --command -- PROGRAM"
        )
    return Path(args.target)


def _must_exist(script: str) -> None:
    try:
        Path(script).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInputError(f"no such file; {similar_file(Path(script)) or 'check the path'}", where=script) from error
    except OSError:
        return  # this error is reported later, when the script is read


def names_program(args: JobArgs) -> bool:
    """Returns whether a command line contains a script, a job file, a module or a command.

    If the result is False, the argument TARGET may be the name of an earlier run.
    """
    return names_file(args.target or "") or args.module is not None or args.command


def _is_script(target: str | None) -> bool:
    return target is not None and target.lower().endswith(".py")


def _with_flags(content: Mapping[str, Any], args: JobArgs, base_dir: Path) -> dict[str, Any]:
    """Returns the content of a job file after the flags have replaced the values of fields."""
    data = dict(content)
    if args.code is not None:
        data["code"] = args.code and os.path.relpath(args.code, base_dir)  # the model rejects an empty path
    if args.target is not None and _is_script(args.target):
        # If the field `code` is set, the path of the script is relative to the directory that `code` specifies.
        data["script"] = os.path.relpath(args.target, base_dir) if args.code is not None else args.target
    if args.program is not None:
        data["command" if args.command else "args"] = list(args.program)
    if args.module is not None:
        data["module"] = args.module
    for path, (_, argument, read) in _FLAGS.items():
        if (given := getattr(args, argument)) is not None:
            data = _with_value(data, path, read(given))
    entries = {"env": parse_env(args.env or (), os.environ), "labels": parse_labels(args.labels or ())}
    return merged(data, {field: given for field, given in entries.items() if given})


def _with_value(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Returns the content of a job file after the flag for the field at `path` has set a value."""
    section, _, field = path.rpartition(".")
    if section == "resources_per_node":
        return with_resource(data, field, value)
    if path == "framework" and part(data, path).get("kind") == value:
        return data  # the other options of the framework are kept
    if path == "hang" and isinstance(value, dict):
        value = {**part(data, path), **value}
    return with_field(data, tuple(path.split(".")), value)


def _replaced_notes(content: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns a note if the arguments after `--` replace the arguments of the job file."""
    replaced = content.get("args")
    if not isinstance(replaced, list) or not replaced or data["args"] == replaced:
        return ()
    words = shlex.join(map(str, replaced))
    return (f"args: the arguments after -- replace those of the job file: {words}",)


def _placed(problem: str, file: Path | None, text: str, flagged: set[str], args: JobArgs) -> str:
    """Adds the path of the job file to a message about a field. If a flag has set the field, names the flag instead."""
    path, _, rest = problem.partition(": ")
    if path in _FLAGS:
        flag, argument, _ = _FLAGS[path]
        if getattr(args, argument) is not None:
            return f"{flag}: {rest}"
    field = re.match(r"[a-z_]+(?=[.:])", problem)
    if file is None or (field and field.group() in flagged):
        return problem
    return f"{_with_line(file, text, problem)}: {problem}"


def _with_line(file: Path, text: str, problem: str) -> str:
    """Returns the path of a job file, with the number of the line if the problem is a key that only one line has."""
    key = re.search(r"\bunknown key '(\w+)'", problem)
    if key is None:
        return str(file)
    row = re.compile(rf"(?:^|[\s{{,])[\"']?{key[1]}[\"']?\s*:")
    found = [number for number, line in enumerate(text.split("\n"), 1) if row.search(line)]
    return f"{file}:{found[0]}" if len(found) == 1 else str(file)
