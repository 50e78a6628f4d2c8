"""Checks the fields of a job when a DAG file is parsed, as far as their values are known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepset_airflow.parsing.given import Given
from stepset_airflow.run.job_fields import ENTRIES, JOB_FIELDS, entry_problem, with_queue

_ANY_PROGRAM = "pass"


def job_problems(given: Given, folder: Path | None, *, sets_function: bool, complete: bool) -> list[str]:
    """Returns one line for each problem.

    Args:
        given: the arguments.
        folder: the directory of the DAG file, to which the path of a job file is relative; None: unknown.
        sets_function: whether the program is the function that the decorator decorates.
        complete: False if `expand` may add arguments.
    """
    from stepset.errors import BadInputError
    from stepset.spec.load import check_known_fields

    fields = {name: given.values[name] for name in JOB_FIELDS if given.values.get(name) is not None}
    try:
        base, where, unknown = _base(given, folder)
    except BadInputError as error:
        return str(error).splitlines()
    unknown = unknown - fields.keys() | {name for name in JOB_FIELDS if not given.is_known(name)}
    found = [] if (problem := entry_problem(fields, base is not None, sets_function, complete)) is None else [problem]
    if found:
        unknown |= set(ENTRIES)  # the model's own message would repeat it
    data = with_queue({**(base or {}), **fields}, given.value("queue_name"))
    if sets_function:
        data, unknown = {**data, "function": _ANY_PROGRAM}, unknown - {"function"}
    try:
        check_known_fields(data, unknown, where)
    except BadInputError as error:
        found += str(error).splitlines()
    return found


def _base(given: Given, folder: Path | None) -> tuple[Mapping[str, Any] | None, str, set[str]]:
    """Returns the fields of `job`, the name of its file for errors, and the fields of which it has no value yet.

    The fields are None if there is no `job`. Raises BadInputError if the file cannot be read.
    """
    from stepset.errors import BadInputError
    from stepset.spec.load import read_job_file

    job = given.values.get("job")
    if job is None:
        return None, "", set()
    if isinstance(job, Mapping):
        return job, "", {key for key, value in job.items() if given.templates.are_in(value)}
    if not given.is_known("job"):
        return {}, "", set(JOB_FIELDS)
    if not isinstance(job, str):
        raise BadInputError(f"job: {job!r} is not known; give a mapping, the path of a job file, or a TrainingJob")
    path = None if folder is None else folder / job
    # An earlier task may write the file. Unlike Path.exists, os.path.exists returns False for an unusable path.
    if path is None or not os.path.exists(path):  # noqa: PTH110
        return {}, "", set(JOB_FIELDS)
    return read_job_file(path), str(path), set()
