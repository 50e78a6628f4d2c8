"""Creates the reference that a task passes to its trigger. The reference identifies the workload of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def workload_reference(workload: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Returns those fields of a workload that a trigger needs. These fields contain no secrets."""
    from stepset.targets.gang import QUEUE_LABEL
    from stepset.targets.metadata import RANKS

    metadata = workload["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "target": target,
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "labels": {key: labels[key] for key in (QUEUE_LABEL,) if key in labels},
            "annotations": {key: notes[key] for key in (RANKS,) if key in notes},
        },
    }
