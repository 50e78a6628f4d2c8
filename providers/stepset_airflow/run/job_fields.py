"""Builds a job from the parameters of an operator. Slow modules are imported inside functions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset.defaults import ENTRIES, JOB_FIELDS, LIST_FIELDS, MAPPING_FIELDS
from stepset_airflow.missing_run import RENDERED_NONE

if TYPE_CHECKING:
    from stepset.spec import TrainingJob
    from stepset_airflow.run.training_task import TrainingTask

COLLECTIONS = ("framework", "code", "hang", "resources", *LIST_FIELDS, *MAPPING_FIELDS)
"""The fields of a job, and of a role, that are lists or mappings."""


def entry_problem(fields: Mapping[str, Any], has_job: bool, sets_function: bool, complete: bool) -> str | None:
    """Checks the fields that define the program. Returns a problem, or None if there is no problem.

    Args:
        fields: the given fields. The values may be unknown.
        has_job: whether the parameter `job` is given. This parameter may define the program.
        sets_function: whether the program is a decorated function.
        complete: whether all fields are given. False if `expand` may add fields.
    """
    given = [entry for entry in ENTRIES if fields.get(entry) is not None]
    if sets_function and given:
        return f"{given[0]}: the decorated function is the program; leave {given[0]} out"
    if len(given) > 1:
        return f"give only one of {', '.join(ENTRIES)}; {' and '.join(given)} are given"
    if callable(function := fields.get("function")):
        name = getattr(function, "__name__", repr(function))
        return (
            f"function: {name} is a Python function, and this parameter is the source text of a program; decorate"
            f" {name} with @task.distributed_train and leave the operator out, or give script"
        )
    if not given and complete and not (has_job or sets_function) and fields.get("framework") is None:
        return f"no program is given; give one of {', '.join(ENTRIES)}, or job"
    return None


def job_of_task(task: TrainingTask, labels: Mapping[str, str] | None = None) -> tuple[TrainingJob, Path]:
    """Returns the job of a task and its base directory. The labels and the errors are those of `job_of`."""
    fields = {field: getattr(task, field) for field in JOB_FIELDS}
    return job_of(task.job, fields, task.queue_name, Path(task.dag.folder), task.warm_start_env, labels)


def job_of(
    job: Mapping[str, Any] | str | None,
    fields: Mapping[str, Any],
    queue_name: str | None,
    dag_folder: Path,
    environment: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[TrainingJob, Path]:
    """Returns the job that the rendered parameters of an operator define, and the base directory of the job.

    Relative paths in the job are relative to the base directory.

    Args:
        job: a mapping, or the path of a job file relative to `dag_folder`. If `job` is None, `fields` define the job.
        fields: the fields of a job file. A field that is not None replaces the same field of `job`.
        queue_name: a shorthand for the field scheduling.queue_name.
        dag_folder: the directory of the DAG file.
        environment: additional environment variables of the ranks. Variables of the job take precedence.
        labels: additional labels of the Kubernetes objects. Labels of the job take precedence.

    Raises BadInputError if the job file cannot be read, or if the job is invalid.
    """
    from stepset.errors import BadInputError
    from stepset.spec.load import parse_job, read_job_file

    if missing := [name for name, value in {"job": job, **fields}.items() if value == "None"]:
        raise BadInputError(*(f"{name}: {RENDERED_NONE}" for name in missing))
    if rendered := list(_rendered_as_text({"job": job, **fields}, ("job", *COLLECTIONS))):
        raise BadInputError(*rendered)
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


def _rendered_as_text(fields: Mapping[str, Any], names: Collection[str], place: str = "") -> Iterator[str]:
    """Yields a problem for each field that is the text of a list or of a mapping, because a template was rendered.

    Args:
        fields: the fields of a job or of a role.
        names: the names of the fields that are lists or mappings.
        place: the path of `fields`. The path ends with a dot.
    """
    from stepset.spec.scalars import collection_in, shortened

    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and (found := collection_in(value)) is not None:
            kind = "list" if isinstance(found, list) else "mapping"
            yield (
                f"{place}{name}: the {kind} {shortened(value)} was rendered as text; give the result of the task itself"
                f" (an XComArg), such as {name}=prepare() or {name}=prepare.output, or set"
                " render_template_as_native_obj=True in the DAG"
            )
        elif name == "job" and isinstance(value, Mapping):
            yield from _rendered_as_text(value, COLLECTIONS, "job.")
        elif name == "roles" and isinstance(value, (list, tuple)):
            for index, role in enumerate(value):
                if isinstance(role, Mapping):
                    yield from _rendered_as_text(role, COLLECTIONS, f"{place}roles[{index}].")


def with_queue(data: Mapping[str, Any], queue_name: str | None) -> dict[str, Any]:
    """Returns the fields of a job with `queue_name` as the value of scheduling.queue_name.

    If `queue_name` is None, or if `scheduling` is not a mapping, the fields are returned unchanged.
    """
    scheduling = data.get("scheduling") or {}
    if queue_name is None or not isinstance(scheduling, Mapping):
        return dict(data)
    return {**data, "scheduling": {**scheduling, "queue_name": queue_name}}


def templatable(job: Any) -> Any:
    """Converts the parameter `job` to a form that Airflow can render.

    A TrainingJob becomes a mapping. A path becomes a string. All other values are returned unchanged.
    """
    if hasattr(job, "model_dump"):
        return job.to_dict()
    return os.fspath(job) if isinstance(job, os.PathLike) else job
