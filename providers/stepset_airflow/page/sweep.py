"""Creates the data of the page that compares the runs of a mapped task.

For each run, the data contains a curve and the parameters of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepset_airflow.page.document import summary_of

MAX_RUNS = 100
"""Maximum number of runs of a sweep. If a mapped task has more runs, the runs with the lowest map indexes are shown."""


def sweep_of(rows: Sequence[tuple[dict[str, Any], dict[str, Any] | None]], metric: str) -> dict[str, Any]:
    """Returns the data of a sweep's page.

    Args:
        rows: the identity and the document of each task instance. The caller must have removed the fields that the user
            may not read. The document is None if no document exists, or if the document is unreadable.
        metric: the name of the metric that the curves show. If no run has reported this metric, the first metric whose
            name contains `loss` is used. If no name contains `loss`, the first metric is used.

    Returns:
        `runs`: a list with a mapping for each task instance. In this mapping, `task` is the identity of the task
        instance, and `points` is the curve. `training` is the summary of the document, with an additional field
        `values` for the last values of all metrics.
        `metric`: the name of the metric that the curves show.
        `metrics`: the names of all metrics.
        `x`: the unit of the horizontal axis, `step` or `percent`. If a run reports the other unit, its curve has no
        points.
        `parameters`: the names of the parameters that have different values in different runs.
    """
    documents = [document for _, document in rows if document is not None]
    names = list(dict.fromkeys(name for document in documents for name in document["curve"]["names"]))
    losses = (name for name in names if "loss" in name.lower())
    chosen = metric if metric in names else next(losses, names[0] if names else "")
    x = next((document["curve"]["x"] for document in documents if chosen in document["curve"]["names"]), "step")
    return {
        "runs": [{"task": task, **_run(document, chosen, x)} for task, document in rows],
        "x": x,
        "metric": chosen,
        "metrics": names,
        "parameters": _differing([dict(document.get("parameters", ())) for document in documents]),
    }


def _run(document: Mapping[str, Any] | None, metric: str, x: str) -> dict[str, Any]:
    if document is None:
        return {"training": None, "points": []}
    names, points = document["curve"]["names"], document["curve"]["points"]
    values = {name: _last(points, place) for place, name in _places(names)}
    shown = [[point[0], point[place]] for place, name in _places(names) if name == metric for point in points]
    training = {**summary_of(document), "parameters": dict(document.get("parameters", ())), "values": values}
    points = [point for point in shown if None not in point] if document["curve"]["x"] == x else []
    return {"training": training, "points": points}


def _places(names: Sequence[str]) -> list[tuple[int, str]]:
    """Returns pairs of an index and a metric. Each point of a curve contains the metric's value at this index."""
    return list(enumerate(names, 1))


def _last(points: Sequence[Sequence[float | None]], place: int) -> float | None:
    return points[-1][place] if points and place < len(points[-1]) else None


def _differing(parameters: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for each in parameters for name in each)
    return [name for name in names if len({each.get(name) for each in parameters}) > 1 or len(parameters) == 1]
