"""Messages about a run name that no run has. The sensor and its trigger write these messages to the task log."""

from __future__ import annotations

RENDERED_NONE = (
    "a template was rendered as 'None', so its value is missing; check the names in the template, such as the task_ids"
    " of xcom_pull"
)
"""The problem of a field whose text is `None`. No field of a job, and no run name, has such a value."""
_NAMES = "`stepset list` prints the names of runs"
_OF_OPERATOR = (
    "; for the run of a DistributedTrainOperator, set wait_for_completion=False there, and"
    " run_name=\"{{ ti.xcom_pull(task_ids='TASK')['run'] }}\" here"
)
"""The remedy for runs on a cluster. The task of a local run always waits for its run."""


def name_problem(name: object, *, local: bool = False) -> str | None:
    """Returns why no run can have this name, or None if a run can have this name.

    `local` states whether the run is a local run.
    """
    from stepset.spec.names import check_dns_1035

    if name is None:
        return "run_name: is missing; give the name of a run"
    if not isinstance(name, str) or not name:
        return f"run_name: {name!r} is not known; give the name of a run"
    if name == "None":
        return f"run_name: {RENDERED_NONE}"
    try:
        check_dns_1035(name)
    except ValueError:
        kind = "this may be the name of an Airflow task (DAG.TASK); " if "." in name else ""
        return f"run_name: {name!r} cannot be the name of a run; {kind}{_NAMES}{'' if local else _OF_OPERATOR}"
    return None


def missing_run(name: str, place: str, newest: str | None = None, *, local: bool = False) -> str:
    """Returns the message about a run that does not exist.

    Args:
        name: the name that the sensor's user gave.
        place: where the run was looked up, such as `namespace ml`.
        newest: the name of the newest run of the job `name`, or None if there is no such job.
        local: whether the sensor waits for a local run.
    """
    job = "" if newest is None else f"; {name!r} is the name of a job, whose newest run is {newest}"
    remedy = f"{_NAMES}{'' if local else _OF_OPERATOR}"
    return f"no run is named {name!r} in {place}{job}; the sensor waits until a run has this name; {remedy}"
