"""The reference to a run's workload that a task passes to its trigger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def workload_reference(workload: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Returns the fields of a run's workload that a trigger needs; none of them contains a secret."""
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
