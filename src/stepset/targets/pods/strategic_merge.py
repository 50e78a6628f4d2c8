"""Applies `pod_template` to a pod as a strategic merge patch, by the rules of Kubernetes.

These are the rules:

- If a list has a merge key (`patchMergeKey` in k8s.io/api v0.36 core/v1/types.go), its entries are merged by this key.
  All other lists are replaced.
- `null` removes a field.
- `$patch: delete` removes an entry of a list.
- `$patch: replace` removes the existing content of a list or a mapping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

# The name of a field -> the merge key of the list in this field. Fields of the same name have the same merge key.
MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ownerReferences": "uid",
}
# An existing entry of these lists keeps only the fields that the patch's entry also contains (patchStrategy
# retainKeys). Otherwise, a volume could get two sources.
RETAIN_KEYS = ("volumes", "resourceClaims")
# A variable may have only one of these fields. Kubernetes' merge would keep both, and the pod would be rejected.
_SOURCES = ("value", "valueFrom")
_DIRECTIVE = "$patch"


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` after `patch` is applied. The arguments are not changed.

    If a list in `patch` contains values that are not mappings, the list replaces the list in `base`.

    >>> merge({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "2"}]})["env"]
    [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]
    """
    if patch.get(_DIRECTIVE) == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    merged = dict(base)
    for key, value in patch.items():
        if value is None or (isinstance(value, Mapping) and value.get(_DIRECTIVE) == "delete"):
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            ours = merged.get(key)
            merged[key] = merge(ours if isinstance(ours, Mapping) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(entry, Mapping) for entry in value):
            ours = merged.get(key)
            merged[key] = _merge_list(key, ours if isinstance(ours, list) else [], value)
        else:
            merged[key] = value
    return merged


def _merge_list(field: str, base: list[Any], patch: list[Any]) -> list[Any]:
    """Merges two lists. Returns the entries of `base` in their order, followed by the new entries of `patch`.

    If an entry of `patch` and an entry of `base` have the same value of the merge key, the two entries are merged.
    """
    if {_DIRECTIVE: "replace"} in patch:
        own = (entry for entry in patch if entry != {_DIRECTIVE: "replace"} and entry.get(_DIRECTIVE) != "delete")
        return [merge({}, entry) for entry in own]
    rows: list[Any] = list(base)
    # Value of the merge key -> the indexes of the entries. Without this mapping, the merge would take quadratic time.
    places: dict[str, deque[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(_merge_key(field, row), deque()).append(place)
    for entry in patch:
        same = places.setdefault(_merge_key(field, entry), deque())
        if entry.get(_DIRECTIVE) == "delete":
            if same:
                rows[same.popleft()] = None
        elif same:
            rows[same[0]] = merge(_kept(field, rows[same[0]], entry), entry)
        else:
            same.append(len(rows))
            rows.append(merge({}, entry))
    return [row for row in rows if row is not None]


def _merge_key(field: str, entry: Mapping[str, Any]) -> str:
    """Returns the value of an entry's merge key as a string.

    The value is converted because it may be unhashable if the job is invalid.
    """
    return repr(entry.get(MERGE_KEYS[field]))


def _kept(field: str, row: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of the existing entry `row` that remain after the entry `patch` is applied."""
    if field in RETAIN_KEYS:
        return {key: value for key, value in row.items() if key in patch}
    if field == "env" and any(patch.get(source) is not None for source in _SOURCES):
        return {key: value for key, value in row.items() if key not in _SOURCES}
    return row
