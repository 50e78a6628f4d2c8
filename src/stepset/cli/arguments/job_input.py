"""Reads the job of a command line: the job file or script, changed by the flags."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepset.cli.arguments.job_args import JobArgs
from stepset.cli.arguments.overrides import parse_env, parse_setting, with_field, with_resource
from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.plan.model import LaunchPlan
from stepset.sources import absolute
from stepset.spec import TrainingJob, parse_job
from stepset.spec.load import read_job_file

_DIGITS = 19
"""Maximum number of characters of a number in a flag; int() rejects more than 4,300 digits."""
_JOB_FILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class JobInput:
    """A job and its origin.

    Args:
        base_dir: the directory that its paths are relative to.
        where: the prefix of errors: the path of the job file or the script, or the job's name.
    """

    job: TrainingJob
    plan: LaunchPlan
    base_dir: Path
    where: str


def read_job(args: JobArgs) -> JobInput:
    """Returns the job of a command line; BadInputError for unreadable files, contradictory flags, or an invalid job."""
    file = _job_file(args)
    # Not Path.resolve, which raises RuntimeError for a loop of links (Python 3.11).
    base_dir = Path(os.path.realpath(absolute(file))).parent if file else absolute(Path())
    return _job_input(args, file, read_job_file(file) if file else {}, base_dir)


def recorded_input(args: JobArgs, content: Mapping[str, Any], base_dir: Path, run: str) -> JobInput:
    """Returns the job of an earlier run, changed by the flags; raises as `read_job`."""
    return replace(_job_input(replace(args, target=None), None, content, base_dir), where=run)


def _job_input(args: JobArgs, file: Path | None, content: Mapping[str, Any], base_dir: Path) -> JobInput:
    data = _with_flags(content, args, base_dir)
    for setting in args.settings or ():
        path, value = parse_setting(setting)
        data = with_field(data, path, value)
    try:
        job = parse_job(data)
        return JobInput(job, make_plan(job), base_dir, args.target or job.name)
    except BadInputError as error:
        flagged = {field for field in data if field not in content or content[field] != data[field]}
        raise BadInputError(*(_placed(p, file, flagged) for p in error.problems)) from error


def _job_file(args: JobArgs) -> Path | None:
    """Returns the path of the job file; None if the command line names a program; BadInputError if it is ambiguous."""
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
    if not args.target.lower().endswith(_JOB_FILES):
        raise BadInputError(
            f"{args.target}: neither a script (.py) nor a job file (.yaml, .yml, .json); for a module use -m, for any"
            " other program --command -- PROGRAM"
        )
    return Path(args.target)


def _must_exist(script: str) -> None:
    try:
        Path(script).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInputError("no such file; check the path", where=script) from error
    except OSError:
        return  # reading it reports why it cannot be read


def names_program(args: JobArgs) -> bool:
    """Whether a command line names a script, a job file, a module or a command, and not an earlier run."""
    target = args.target or ""
    return target.lower().endswith((".py", *_JOB_FILES)) or args.module is not None or args.command


def _is_script(target: str | None) -> bool:
    return target is not None and target.lower().endswith(".py")


def _with_flags(content: Mapping[str, Any], args: JobArgs, base_dir: Path) -> dict[str, Any]:
    """Returns a job file's content, overridden by the flags."""
    data = dict(content)
    if args.code is not None:
        data["code"] = args.code and os.path.relpath(args.code, base_dir)  # the model rejects an empty text
    if args.target is not None and _is_script(args.target):
        # Inside `code`, the script's path is relative to `code`.
        data["script"] = os.path.relpath(args.target, base_dir) if args.code is not None else args.target
    if args.program is not None:
        data["command" if args.command else "args"] = list(args.program)
    if args.framework is not None and not _same_kind(data.get("framework"), args.framework):
        data["framework"] = args.framework
    for field in ("module", "name", "image", "deadline"):
        if (value := getattr(args, field)) is not None:
            data[field] = value
    for field in ("num_nodes", "procs_per_node"):
        if (value := getattr(args, field)) is not None:
            data[field] = _number(value)
    for resource in ("gpus", "cpus", "memory"):
        if (value := getattr(args, resource)) is not None:
            data = with_resource(data, resource.replace("cpus", "cpu"), _number(value))
    if args.checkpoint_dir is not None:
        data["checkpoint_dir"] = args.checkpoint_dir and os.path.abspath(args.checkpoint_dir)  # noqa: PTH100  # must not follow links
    for name, value in parse_env(args.env or ()).items():
        data = with_field(data, ("env", name), value)
    if args.max_restarts is not None:
        data = with_field(data, ("restart", "max_restarts"), _number(args.max_restarts))
    return data


def _number(text: str) -> int | str:
    """Returns the whole number in a flag's text; other text is returned as it is, for the model to reject."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) <= _DIGITS else text


def _same_kind(framework: Any, kind: str) -> bool:
    """Returns whether the file's framework is a mapping of that kind, whose options then apply."""
    return isinstance(framework, Mapping) and framework.get("kind") == kind


def _placed(problem: str, file: Path | None, flagged: set[str]) -> str:
    """Prefixes a problem with the job file's name, unless the command line set its field."""
    field = re.match(r"[a-z_]+(?=[.:])", problem)
    return problem if file is None or (field and field.group() in flagged) else f"{file}: {problem}"
