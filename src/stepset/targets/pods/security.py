"""Implements the job's field `security: restricted`.

Adds fields to pods, so that the pods meet the level `restricted` of Kubernetes' Pod Security Standards. Source:
k8s.io/pod-security-admission v0.36 policy (kubernetes.io/docs/concepts/security/pod-security-standards).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESTRICTED = "restricted"
CONTAINER_KINDS = ("initContainers", "containers")

REMEDY = f"set `security: {RESTRICTED}` in the job"
"""Advice for the user if a namespace admits only restricted pods."""

LACKS_RESTRICTED = (
    r'(?s)violates PodSecurity "restricted.*'
    r"(allowPrivilegeEscalation != false|unrestricted capabilities|runAsNonRoot != true|seccompProfile)"
)
"""Matches the error message of an API server about a pod that lacks fields that `restricted` requires.

`REMEDY` is the advice for this error.
"""

_POD: Mapping[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER: Mapping[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def restricted(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pod template with the fields that `restricted` requires in the pod and in all containers.

    Existing values are not changed. `validation/restricted.py` reports existing values that `restricted` does not
    admit.
    """
    spec = dict(template["spec"])
    spec["securityContext"] = _with_defaults(spec.get("securityContext"), _POD)
    for kind in CONTAINER_KINDS:
        if kind in spec:
            spec[kind] = [
                {**row, "securityContext": _with_defaults(row.get("securityContext"), _CONTAINER)} for row in spec[kind]
            ]
    return {**template, "spec": spec}


def _with_defaults(given: Any, defaults: Mapping[str, Any]) -> Any:
    """Returns `given` after adding the missing fields of `defaults`, including fields of nested mappings.

    A value of a wrong type is not changed. The API server reports such a value.
    """
    if not isinstance(given, Mapping):
        return dict(defaults) if given is None else given
    merged = dict(given)
    for key, value in defaults.items():
        if isinstance(value, Mapping) or merged.get(key) is None:
            merged[key] = _with_defaults(merged.get(key), value) if isinstance(value, Mapping) else value
    return merged
