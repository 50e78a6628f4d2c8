"""Builds a job from an operator's parameters; stepset's models are imported when a task runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.spec import TrainingJob

JOB_FIELDS = (
    "name",
    "framework",
    "num_nodes",
    "procs_per_node",
    "image",
    "script",
    "module",
    "command",
    "function",
    "args",
    "code",
    "env",
    "resources_per_node",
    "storage",
    "checkpoint_dir",
    "roles",
    "restart",
    "deadline",
    "ttl",
    "scheduling",
    "network",
    "service_account",
    "security",
    "labels",
    "annotations",
    "pod_template",
    "agent",
)
"""The job file's fields, in the order of stepset.spec.job.TrainingJob."""

ENTRIES = ("script", "module", "command", "function")
"""The fields that define the program."""


def entry_problem(fields: Mapping[str, Any], has_job: bool, sets_function: bool, complete: bool) -> str | None:
    """Returns the problem of the fields that define the program, None if there is none.

    Args:
        fields: the given fields; their values need not be known.
        has_job: whether a job is given, which may define the program.
        sets_function: whether the program is a decorated function.
        complete: False if further fields may be given later.
    """
    given = [entry for entry in ENTRIES if fields.get(entry) is not None]
    if sets_function and given:
        return f"{given[0]}: the decorated function is the program; leave {given[0]} out"
    if len(given) > 1:
        return f"give only one of {', '.join(ENTRIES)}; {' and '.join(given)} are given"
    if not given and complete and not (has_job or sets_function) and fields.get("framework") is None:
        return f"no program is given; give one of {', '.join(ENTRIES)}, or job"
    return None


def job_of(
    job: Mapping[str, Any] | str | None,
    fields: Mapping[str, Any],
    queue_name: str | None,
    dag_folder: Path,
    environment: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[TrainingJob, Path]:
    """Returns the job of an operator's rendered parameters, and the directory its paths are relative to.

    Args:
        job: a mapping, or a job file's path relative to `dag_folder`; None: `fields` describe the whole job.
        fields: the job file's fields; those that are not None replace `job`'s.
        queue_name: shorthand for scheduling.queue_name.
        environment, labels: additional variables of the ranks and labels of the objects; the job's own take precedence.

    Raises BadInputError if the job cannot be read, or is not valid.
    """
    from stepset.spec.load import parse_job, read_job_file

    base, where = dag_folder, ""
    data: dict[str, Any] = {}
    if isinstance(job, str):
        path = dag_folder / job
        data, base, where = dict(read_job_file(path)), path.parent, str(path)
    elif job is not None:
        data = dict(job)
    data |= {name: value for name, value in fields.items() if value is not None}
    data = with_queue(data, queue_name)
    for field, more in (("env", environment), ("labels", labels)):
        if more and isinstance(given := data.get(field) or {}, Mapping):
            data[field] = {**more, **given}
    return parse_job(data, where=where), base


def with_queue(data: Mapping[str, Any], queue_name: str | None) -> dict[str, Any]:
    """Returns a job's fields with `queue_name` as their scheduling.queue_name.

    The fields are unchanged if `queue_name` is None, or if `scheduling` is not a mapping.
    """
    scheduling = data.get("scheduling") or {}
    if queue_name is None or not isinstance(scheduling, Mapping):
        return dict(data)
    return {**data, "scheduling": {**scheduling, "queue_name": queue_name}}


def templatable(job: Any) -> Any:
    """Returns a job in a form that Airflow can render: a TrainingJob as a mapping, a path as text, others unchanged."""
    if hasattr(job, "model_dump"):
        return job.to_dict()
    return os.fspath(job) if isinstance(job, os.PathLike) else job
