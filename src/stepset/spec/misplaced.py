"""Hints for keys of a job file that belong to another field, or that are no part of a job.

Also recognises an object of Kubernetes in the place of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from stepset.spec.base import did_you_mean, snake_case
from stepset.spec.scalars import shortened

_OTHER_NAMES = {
    "cpu": "resources_per_node.cpu",
    "cpus": "resources_per_node.cpu",
    "elastic": "framework: {kind: torch, elastic: ...}",
    "gpu": "resources_per_node.gpus",
    "gpus": "resources_per_node.gpus",
    "launcher": "framework: {kind: torch, launcher: ...}",
    "memory": "resources_per_node.memory",
    "priority_class_name": "scheduling.priority_class",
    "pvc": "storage",
    "queue": "scheduling.queue_name",
    "retries": "restart.max_restarts",
    "shm": "resources_per_node.shm",
    "timeout": "deadline",
    "volume_mounts": "storage",
    "volumes": "storage",
}
"""The fields that are meant by keys of other tools, or by names of resources."""
_OPTIONS = ("admission_timeout", "backend", "context", "detach", "kubeconfig", "namespace", "startup_timeout", "target")
"""The options of a run that every interface has outside the job, or that only the command line has."""


def hint_elsewhere(key: str, parts: Mapping[str, type[BaseModel]], *, options: bool = True) -> str:
    """Returns a hint for an unknown key of a job, or "" if the key is not known anywhere.

    Args:
        key: the key. The spelling of the Kubernetes API, such as `nodeSelector`, is accepted, too.
        parts: the models of the fields whose own fields may be meant.
        options: whether the hint may state that the key is an option of a run.

    >>> from stepset.spec.parts import Scheduling
    >>> hint_elsewhere("nodeSelector", {"scheduling": Scheduling})
    "did you mean 'scheduling.node_selector'?"
    >>> hint_elsewhere("target", {})
    'it is no field of a job; give it to the command, function or operator that starts the run'
    """
    name = snake_case(key)
    if name in _OPTIONS and options:
        return "it is no field of a job; give it to the command, function or operator that starts the run"
    fields = [f"{part}.{name}" for part, model in parts.items() if name in model.model_fields]
    return did_you_mean(_OTHER_NAMES.get(name) or (fields[0] if len(fields) == 1 else None))


def object_problem(data: Any) -> str:
    """Returns the problem if `data` is an object of Kubernetes, such as a PyTorchJob. Returns "" for other values.

    >>> object_problem({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "spec": {}}).partition(";")[0]
    "kind: 'MPIJob' is an object of Kubernetes, not a job of stepset"
    >>> object_problem({"framework": {"kind": "mpi"}})
    ''
    """
    if not isinstance(data, Mapping) or not data.keys() & {"apiVersion", "spec"} or not data.get("kind"):
        return ""
    return (
        f"kind: {shortened(repr(data['kind']))} is an object of Kubernetes, not a job of stepset; write a job with the"
        " fields that docs/guides/pytorchjob.md lists for those of a PyTorchJob"
    )
