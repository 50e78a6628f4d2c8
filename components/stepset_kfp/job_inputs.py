"""Converts a component's inputs to a job file's mapping. Pure.

KFP's inputs have one type each and cannot be None: empty text, lists and mappings mean "not given".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from stepset.errors import BadInputError
from stepset.spec.yamlfile import read_yaml

TEXT_FIELDS = (
    "name",
    "framework",
    "procs_per_node",
    "image",
    "script",
    "module",
    "function",
    "code",
    "checkpoint_dir",
    "deadline",
    "ttl",
    "service_account",
    "security",
    "agent",
)
"""Fields of the job file that are text inputs of the component."""
LIST_FIELDS = ("command", "args", "storage", "roles")
MAPPING_FIELDS = (
    "env",
    "resources_per_node",
    "restart",
    "scheduling",
    "network",
    "labels",
    "annotations",
    "pod_template",
)
JOB_FIELDS = (*TEXT_FIELDS, "num_nodes", *LIST_FIELDS, *MAPPING_FIELDS)

NOT_GIVEN = -1
"""The component's default of `num_nodes`. It is not 0, because a pipeline that computes 0 by mistake would then train
on one node."""

WHOLE = "$whole"
"""Key of the mapping that the factory puts around a pipeline's parameter of type Integer."""

SOURCE = "$source"
"""Key of the mapping that contains the source of a number or a boolean that KFP would change."""

_YAML_FIELDS = ("framework", "procs_per_node", "deadline", "ttl", "agent")
"""Text inputs that are read as YAML, because a job file accepts several types for these fields."""


def job_mapping(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the job file's mapping; ignores inputs that are not job fields. Raises BadInputError for invalid YAML.

    >>> job_mapping({"job": {"num_nodes": 2.0}, "framework": "{kind: torch, launcher: none}", "args": [1.0, "x"]})
    {'num_nodes': 2, 'framework': {'kind': 'torch', 'launcher': 'none'}, 'args': [1, 'x']}
    """
    job: dict[str, Any] = dict(whole(inputs.get("job") or {}))
    for field in JOB_FIELDS:
        value = inputs.get(field)
        if value in (None, "", [], {}) or (field == "num_nodes" and value == NOT_GIVEN):
            continue
        job[field] = _read(field, value) if field in _YAML_FIELDS else whole(value)
    if queue_name := inputs.get("queue_name"):
        job["scheduling"] = {**(job.get("scheduling") or {}), "queue_name": queue_name}
    if shm := inputs.get("shm"):
        job["resources_per_node"] = {"shm": shm, **(job.get("resources_per_node") or {})}
    return job


def whole(value: Any) -> Any:
    """Converts whole floats, and values marked with WHOLE, to int; reads values marked with SOURCE.

    Raises BadInputError if a value marked with WHOLE is not a number.

    KFP passes lists and mappings as protobuf's Struct, whose numbers are doubles (kubeflow/pipelines#11004).
    """
    if isinstance(value, Mapping) and set(value) == {WHOLE}:
        try:
            return int(float(value[WHOLE]))
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInputError(f"{value[WHOLE]!r} is not a whole number; give one such as 2") from error
    if isinstance(value, Mapping) and set(value) == {SOURCE}:
        return _read(SOURCE, value[SOURCE])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(item) for item in value]
    return value


def as_text(value: Any) -> Any:
    """Returns the value of a text input: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _read(field: str, text: str) -> Any:
    try:
        return read_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"{field}: {text!r} is not valid YAML; give a word, a number or a JSON mapping") from error
