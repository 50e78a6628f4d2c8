"""Checks the fields and the plan of a job when a DAG file is parsed. Fields with unknown values are not checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import conf

from stepset.defaults import ENTRIES, JOB_FIELDS
from stepset_airflow.logs.task_log import ranks_to_log
from stepset_airflow.parsing.given import Given
from stepset_airflow.parsing.templates import Templates
from stepset_airflow.run.job_fields import entry_problem, with_queue

_ANY_PROGRAM = "pass"
_NOT_PLANNED = frozenset(
    {
        "args",
        "env",
        "image",
        "name",
        "checkpoint_dir",
        "labels",
        "annotations",
        "deadline",
        "ttl",
        "termination_grace_period",
        "hang",
    }
)
"""Fields that do not affect the number of ranks. The values of these fields are often templates."""


def job_problems(given: Given, folder: Path | None, *, sets_function: bool) -> list[str]:
    """Returns one line for each problem of the job's fields.

    Args:
        given: the arguments of the operator.
        folder: the directory of the DAG file, or None if the directory is unknown. The path of a job file is relative
            to this directory.
        sets_function: whether the program is the function that the decorator decorates.
    """
    from stepset.errors import BadInputError
    from stepset.spec.load import check_known_fields

    fields = {name: given.values[name] for name in JOB_FIELDS if given.values.get(name) is not None}
    try:
        base, where, unknown = _base(given, folder)
    except BadInputError as error:
        return str(error).splitlines()
    unknown = unknown - fields.keys() | {name for name in JOB_FIELDS if not given.is_known(name)}
    complete = all(name in given.values for name in ("job", "framework", *ENTRIES))
    problem = entry_problem(fields, base is not None, sets_function, complete)
    found = [] if problem is None else [problem]
    if found:
        unknown |= set(ENTRIES)  # otherwise the model of the job would report the same problem again
    data = with_queue({**(base or {}), **fields}, given.value("queue_name"))
    if sets_function:
        data, unknown = {**data, "function": _ANY_PROGRAM}, unknown - {"function"}
    try:
        check_known_fields(data, unknown, where)
    except BadInputError as error:
        # The operator has no unknown parameters at this point, so an unknown key is one of the mapping `job`.
        lines = str(error).splitlines()
        found += [f"job: {line}" if line.startswith("unknown key") else line for line in lines]
        unknown |= {each.partition(":")[0].partition(".")[0].partition("[")[0] for each in error.problems}
    found += _relative_checkpoint_dir(data.get("checkpoint_dir"), given.templates)
    ranks = _ranks_to_log(given)
    if problem is None and unknown <= _NOT_PLANNED and (data.get("command") or ranks):
        found += _plan_problems({key: value for key, value in data.items() if key not in unknown}, where, ranks)
    return found


def _relative_checkpoint_dir(path: object, templates: Templates) -> Iterator[str]:
    """Yields a problem if a path contains a template, but its constant start shows that the path is relative."""
    if isinstance(path, str) and templates.start_in(path) and not path.startswith(("/", *templates.starts)):
        yield f"checkpoint_dir: {path!r} is not an absolute path; start it with '/'"


def _ranks_to_log(given: Given) -> frozenset[int]:
    """Returns the ranks of the parameter `log_ranks`. The set is empty if `log_ranks` selects all or no ranks."""
    if (value := given.value("log_ranks")) is None:
        return frozenset()
    try:
        return ranks_to_log(value) or frozenset()
    except ValueError:
        return frozenset()  # `option_problems` reports this problem


def _plan_problems(data: Mapping[str, Any], where: str, ranks: frozenset[int]) -> list[str]:
    """Returns one line for each reason why a job cannot be planned, and a line if one of `ranks` does not exist.

    For example, a flag of the command may contradict a field of the job. Jobs without a command and without `ranks` are
    not checked, because importing the planners would slow down the parsing of every DAG file.
    """
    from stepset.errors import BadInputError
    from stepset.frameworks import make_plan
    from stepset.log_sources import check_ranks
    from stepset.plan.ranks import max_ranks
    from stepset.spec import parse_job

    try:
        job = parse_job(data)
    except BadInputError:
        return []  # rules about several fields are checked when the values of all fields are known
    if job.agent == "auto":  # only local runs use the agent for every program
        job = job.model_copy(update={"agent": True})
    try:
        plan = make_plan(job)
    except BadInputError as error:
        return str(BadInputError(*error.problems, where=where)).splitlines()
    try:
        if (size := max_ranks(plan)) is not None:
            check_ranks(ranks, size, "the job", "log_ranks")
    except BadInputError as error:
        return [str(error)]
    return []


def missing_parts(given: Given, folder: Path) -> Iterator[str]:
    """Yields a problem if the job file or the script does not exist, or if a required image is missing.

    An absolute path is not checked, because the task may run on another machine on which the path exists. If the DAG
    file is in a zip file, no path is checked.

    Args:
        given: the arguments of the operator.
        folder: the directory of the DAG file.
    """
    from stepset.errors import BadInputError
    from stepset.regular_files import script_remedy, similar_file

    try:
        base, where, unknown = _base(given, folder)
    except BadInputError:
        return  # `job_problems` reports this problem
    backend = given.values.get("backend") or conf.get("stepset", "backend", fallback="kubernetes")
    unknown = unknown | {name for name in JOB_FIELDS if not given.is_known(name)}
    fields = {name: given.values[name] for name in JOB_FIELDS if given.values.get(name) is not None}
    job = {**(base or {}), **fields}
    if isinstance(file := given.value("job"), str) and (path := _missing_file(file, folder)) is not None:
        remedy = "give the absolute path of a file that exists only when the task runs"
        yield f"job: no such file: {path}; {similar_file(path) or f'paths are relative to {folder}; {remedy}'}"
    script, directory = job.get("script"), Path(where).parent if where else folder
    checked = job.get("code") is None and not {"script", "code"} & unknown
    if checked and isinstance(script, str) and (path := _missing_file(script, directory)) is not None:
        remedy = "" if backend == "local" else "; for a script in the image use command"
        remedy = script_remedy(script, directory) or f"paths are relative to {directory}{remedy}"
        yield f"script: no such file: {path}; {remedy}"
    if job.get("image") is None and "image" not in unknown and given.is_known("backend") and backend == "kubernetes":
        yield 'image: is missing; pods need one; for processes of the worker give backend="local"'


def _missing_file(file: str, directory: Path) -> Path | None:
    """Returns the path of a file if the file does not exist, or None if the file exists or is not checked."""
    path = directory / file
    # If the path is invalid, os.path.isfile returns False, but Path.is_file raises an error.
    exists = Path(file).is_absolute() or not directory.is_dir() or os.path.isfile(path)  # noqa: PTH113
    return None if exists else path


def _base(given: Given, folder: Path | None) -> tuple[Mapping[str, Any] | None, str, set[str]]:
    """Returns the fields of the parameter `job`, the path of the job file, and the names of unknown fields.

    If `job` is not given, the fields are None. If `job` is not a path, or if the job file does not exist yet, the path
    is empty. A field is unknown if its value is determined only when the task runs.

    Raises BadInputError if `job` has a wrong type, or if the job file cannot be read.
    """
    from stepset.errors import BadInputError
    from stepset.spec.load import read_job_file

    if "job" not in given.values:
        return {}, "", set(JOB_FIELDS)
    job = given.values["job"]
    if job is None:
        return None, "", set()
    if isinstance(job, Mapping):
        return job, "", {key for key, value in job.items() if given.templates.are_in(value)}
    if not given.is_known("job"):
        return {}, "", set(JOB_FIELDS)
    if not isinstance(job, str):
        raise BadInputError(f"job: {job!r} is not known; give a mapping, the path of a job file, or a TrainingJob")
    path = None if folder is None else folder / job
    # `missing_parts` reports a missing file, unless an earlier task may create it. If the path is invalid,
    # os.path.exists returns False, but Path.exists raises an error.
    if path is None or not os.path.exists(path):  # noqa: PTH110
        return {}, "", set(JOB_FIELDS)
    return read_job_file(path), str(path), set()
