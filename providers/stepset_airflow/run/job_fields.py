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

_ENTRIES = ("script", "module", "command", "function")


def check_entries(fields: Mapping[str, Any], has_job: bool) -> None:
    """Raises ValueError at parse time unless exactly one field, or the job, defines the program."""
    given = [entry for entry in _ENTRIES if fields.get(entry) is not None]
    if len(given) > 1:
        raise ValueError(f"give only one of {', '.join(_ENTRIES)}; {' and '.join(given)} are given")
    if not given and not has_job and fields.get("framework") is None:
        raise ValueError(f"no program is given; give one of {', '.join(_ENTRIES)}, or job")


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
    if queue_name is not None:
        scheduling = data.get("scheduling") or {}
        data["scheduling"] = {**scheduling, "queue_name": queue_name}
    for field, more in (("env", environment), ("labels", labels)):
        if more and isinstance(given := data.get(field) or {}, Mapping):
            data[field] = {**more, **given}
    return parse_job(data, where=where), base


def templatable(job: Any) -> Any:
    """Returns a job in a form that Airflow can render: a TrainingJob as a mapping, a path as text, others unchanged."""
    if hasattr(job, "model_dump"):
        return job.to_dict()
    return os.fspath(job) if isinstance(job, os.PathLike) else job
