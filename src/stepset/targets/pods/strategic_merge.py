"""Merges `pod_template` over a pod by Kubernetes' rules: a strategic merge patch, without an API server.

Lists that have a merge key (`patchMergeKey` in k8s.io/api v0.36 core/v1/types.go) are merged by it, other lists are
replaced; `null` removes a field, `$patch: delete` an entry of a list; `$patch: replace` removes the existing content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Field of a pod -> the key by which its entries are merged. The names are unique without their paths.
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
# An entry keeps only the patch's fields (patchStrategy retainKeys): a volume has one source, not two.
RETAIN_KEYS = ("volumes", "resourceClaims")
# A variable has one source. Kubernetes' merge keeps both, and its API server then rejects the pod.
_SOURCES = ("value", "valueFrom")
_DIRECTIVE = "$patch"


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` merged over it; neither is changed. A list of other values than mappings is replaced.

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
    """Entries of `base` in their order, changed by those of the patch with the same key; then new ones."""
    if {_DIRECTIVE: "replace"} in patch:
        own = (entry for entry in patch if entry != {_DIRECTIVE: "replace"} and entry.get(_DIRECTIVE) != "delete")
        return [merge({}, entry) for entry in own]
    key = MERGE_KEYS[field]
    rows = list(base)
    for entry in patch:
        at = next((i for i, row in enumerate(rows) if row.get(key) == entry.get(key)), None)
        if entry.get(_DIRECTIVE) == "delete":
            if at is not None:
                del rows[at]
        elif at is None:
            rows.append(merge({}, entry))
        else:
            rows[at] = merge(_kept(field, rows[at], entry), entry)
    return rows


def _kept(field: str, row: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an entry over which those of the patch are merged."""
    if field in RETAIN_KEYS:
        return {key: value for key, value in row.items() if key in patch}
    if field == "env" and any(patch.get(source) is not None for source in _SOURCES):
        return {key: value for key, value in row.items() if key not in _SOURCES}
    return row
