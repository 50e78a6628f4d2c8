"""Converts the inputs of a component to the mapping of a job file.

Each input of a KFP component has exactly one type and cannot be None. Therefore an empty string, list or mapping means
that the input is not given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from stepset.defaults import JOB_FIELDS, LIST_FIELDS, MAPPING_FIELDS
from stepset.errors import BadInputError
from stepset.spec.yamlfile import read_yaml

TEXT_FIELDS = tuple(name for name in JOB_FIELDS if name not in ("num_nodes", *LIST_FIELDS, *MAPPING_FIELDS))
"""The fields of the job file that are string inputs."""
SHORTHANDS = {"queue_name": "scheduling", "shm": "resources_per_node"}
"""The inputs that are a shorthand for the key with the same name in a field of the job file."""

NOT_GIVEN = -1
"""The default of the input `num_nodes`. This value means that the input is not given.

The value is not 0, because a pipeline may compute 0 nodes by mistake. Such a pipeline must not train on one node."""

YAML_FIELDS = ("framework", "procs_per_node", "hang", "deadline", "termination_grace_period", "ttl", "agent")
"""The string inputs that are parsed as YAML, because a job file accepts several types for these fields."""


def job_mapping(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a component's inputs as a mapping in the format of a job file.

    The inputs replace the fields of the input `job`. Inputs that are not fields of the job file are ignored. Raises
    BadInputError if an input is not valid YAML, if a field that requires a mapping has a value of another type, or if
    `queue_name` or `shm` contradicts the field for which it is a shorthand.

    >>> job_mapping({"job": {"num_nodes": 2}, "framework": "{kind: torch, launcher: none}", "args": ["1", "x"]})
    {'num_nodes': 2, 'framework': {'kind': 'torch', 'launcher': 'none'}, 'args': ['1', 'x']}
    """
    if wrong := not_mappings(inputs):
        raise BadInputError(*wrong.values())
    job: dict[str, Any] = dict(inputs.get("job") or {})
    for field in JOB_FIELDS:
        value = inputs.get(field)
        if value in (None, "", [], {}) or (field == "num_nodes" and value == NOT_GIVEN):
            continue
        job[field] = _read(field, value) if field in YAML_FIELDS and isinstance(value, str) else value
    for name, field in SHORTHANDS.items():
        if not (value := inputs.get(name)):
            continue
        other = (inputs.get(field) or {}).get(name, value)
        if other != value:
            raise BadInputError(f"{name}: {value!r} contradicts {field}.{name}, which is {other!r}; give one of them")
        job[field] = {**(job.get(field) or {}), name: value}
    return job


def not_mappings(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Returns the problem of each input that requires a mapping and has a value of another type."""
    wrong = [name for name in MAPPING_FIELDS if inputs.get(name) and not isinstance(inputs[name], Mapping)]
    if not wrong:
        return {}
    from stepset.spec.load import not_a_mapping  # imports pydantic

    return {name: not_a_mapping(name, inputs[name]) for name in wrong}


def as_text(value: Any) -> Any:
    """Converts a value to a string for an input. A string is not changed. Any other value is converted to JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _read(field: str, text: str) -> Any:
    try:
        return read_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"{field}: {text!r} is not valid YAML; give a word, a number or a JSON mapping") from error
