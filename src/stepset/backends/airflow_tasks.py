"""Finds the runs of an Airflow task by the name DAG.TASK, or DAG.TASK[INDEX] for one instance of a mapped task.

stepset_airflow adds labels with the IDs of the DAG and the task to its runs. Names of runs and jobs cannot contain a
dot, so the name DAG.TASK is unambiguous. Contains only pure functions.

If an ID is not a valid value of a label, the label contains `label_value(ID)` instead. Users may give the ID or the
value of the label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stepset.safe_names import label_value

_DAG, _TASK, _INDEX = "dag_id", "task_id", "map_index"
_MAPPED = re.compile(r"(?P<task>.*)\[(?P<index>[0-9]{1,9})\]", re.DOTALL)


def task_of(labels: Mapping[str, str]) -> str:
    """Returns the name of the task to which a run with these labels belongs, or "" if Airflow did not start the run.

    >>> task_of({"dag_id": "nightly", "task_id": "fit", "map_index": "3"})
    'nightly.fit[3]'
    """
    if _DAG not in labels or _TASK not in labels:
        return ""
    index = f"[{labels[_INDEX]}]" if _INDEX in labels else ""
    return f"{labels[_DAG]}.{labels[_TASK]}{index}"


def task_hint(name: str, labels: Iterable[Mapping[str, str]]) -> str:
    """Returns the end of the message that no run is called `name`: how the runs of a task are called, or "".

    Args:
        name: a name that a user gave. A name with a dot may be the name of a task of which there is no run.
        labels: the labels of all runs. A name without a dot may be the ID of a task in them.

    >>> task_hint("fit", [{"dag_id": "nightly", "task_id": "fit"}, {}])
    "; the task of Airflow is called 'nightly.fit'"
    >>> task_hint("nightly.fit", []), task_hint("fit", [])
    ('; a task of Airflow is called DAG.TASK', '')
    """
    if "." in name:
        return "; a task of Airflow is called DAG.TASK"
    found = sorted({each[_DAG] for each in labels if each.get(_TASK) == label_value(name) and _DAG in each})
    return f"; the task of Airflow is called {f'{found[0]}.{name}'!r}" if found else ""


def is_of_task(labels: Mapping[str, str], name: str) -> bool:
    """Returns whether a run with these labels belongs to the task `name`. Without an index, any instance matches.

    >>> is_of_task({"dag_id": "nightly", "task_id": "fit", "map_index": "3"}, "nightly.fit")
    True
    """
    return any(wanted.items() <= labels.items() for wanted in _labels_of(name))


def task_selectors(name: str) -> list[str]:
    """Returns label selectors. Together, the selectors select all runs of the task `name`.

    The IDs of the DAG and of the task can contain dots, so several selectors are possible. For example, the ID of a
    task in a task group starts with the ID of the group and a dot.

    >>> task_selectors("nightly.sweep.fit")
    ['dag_id=nightly,task_id=sweep.fit', 'dag_id=nightly.sweep,task_id=fit']
    >>> task_selectors("nightly.fit[3]")
    ['dag_id=nightly,task_id=fit,map_index=3']
    >>> task_selectors("训练.fit")
    ['dag_id=d8b16075c,task_id=fit']
    """
    return [",".join(f"{key}={value}" for key, value in labels.items()) for labels in _labels_of(name)]


def _labels_of(name: str) -> list[dict[str, str]]:
    """Returns the labels of the runs of the task `name`, for each way to divide the name into a DAG and a task."""
    mapped = _MAPPED.fullmatch(name)
    index = {_INDEX: mapped["index"]} if mapped else {}
    parts = (mapped["task"] if mapped else name).split(".")
    pairs = [(".".join(parts[:end]), ".".join(parts[end:])) for end in range(1, len(parts))]
    return [{_DAG: label_value(dag), _TASK: label_value(task), **index} for dag, task in pairs if dag and task]
