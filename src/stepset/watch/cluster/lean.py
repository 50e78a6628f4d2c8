"""Objects without what no state is read from: for whoever keeps those of a whole namespace.

Given to feeds by the shared watches (backends/kubernetes/shared_watch.py; Airflow's triggerer). An object as it was
last seen is kept for as long as it is there, and most of it says who set which field, and what its pods are to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepset.watch.cluster.fields import Fields, part, rows

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def lean(data: Fields) -> Fields:
    """An object from which RunObjects learns the same.

    Args:
        data: with apiVersion and kind.
    """
    meta = {key: value for key, value in part(data, "metadata").items() if key != "managedFields"}
    notes = meta.get("annotations")
    if isinstance(notes, Mapping) and _LAST_APPLIED in notes:
        meta["annotations"] = {key: value for key, value in notes.items() if key != _LAST_APPLIED}
    cut = _CUTS.get(str(data.get("kind")))
    spec = part(data, "spec")
    return {**data, "metadata": meta, **({"spec": cut(spec)} if cut is not None and spec else {})}


def _pod(spec: Fields) -> dict[str, Any]:
    kept = {key: spec[key] for key in ("nodeName", "restartPolicy") if key in spec}
    wanted = ("name", "command", "restartPolicy")
    containers = [{key: row[key] for key in wanted if key in row} for row in rows(spec, "containers")]
    return {**kept, "containers": containers}


def _job(spec: Fields) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in ("template", "volumeClaimTemplates")}


def _jobset(spec: Fields) -> dict[str, Any]:
    jobs = [{**row, "template": {"spec": _job(part(row, "template", "spec"))}} for row in rows(spec, "replicatedJobs")]
    return {**spec, "replicatedJobs": jobs}


def _trainjob(spec: Fields) -> dict[str, Any]:
    kept = {key: spec[key] for key in ("suspend", "activeDeadlineSeconds") if key in spec}
    return {**kept, "trainer": {key: value for key, value in part(spec, "trainer").items() if key == "numNodes"}}


def _volcano_job(spec: Fields) -> dict[str, Any]:
    tasks = [{**row, "template": {"spec": _deadline(part(row, "template", "spec"))}} for row in rows(spec, "tasks")]
    return {**spec, "tasks": tasks}


def _deadline(spec: Fields) -> dict[str, Any]:
    return {key: spec[key] for key in ("activeDeadlineSeconds",) if key in spec}


def _any_job(spec: Fields) -> dict[str, Any]:
    return _volcano_job(spec) if "tasks" in spec else _job(spec)


_CUTS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "Pod": _pod,
    "Job": _any_job,
    "StatefulSet": _job,
    "JobSet": _jobset,
    "TrainJob": _trainjob,
}
