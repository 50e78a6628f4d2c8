"""The Pod Security level `restricted`, as an API server checks it, for the pods of rendered objects.

Written from k8s.io/pod-security-admission v0.36.3 policy/check_*.go; independent of the code that it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.targets.making import Manifest

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def pod_templates(value: Any) -> Iterator[Manifest]:
    """Yields every pod template in an object, wherever it is."""
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        for inner in value.values():
            yield from pod_templates(inner)
    if isinstance(value, list):
        for inner in value:
            yield from pod_templates(inner)


def violations(template: Manifest) -> list[str]:
    """Returns the checks that refuse a pod of the template."""
    spec = template["spec"]
    pod = spec.get("securityContext") or {}
    containers = [*spec.get("initContainers", []), *spec["containers"], *spec.get("ephemeralContainers", [])]
    contexts = [each.get("securityContext") or {} for each in containers]
    seccomp = (pod.get("seccompProfile") or {}).get("type")
    checks = {
        "host namespaces": any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "privileged": any(each.get("privileged") for each in contexts),
        "allowPrivilegeEscalation": any(each.get("allowPrivilegeEscalation") is not False for each in contexts),
        "capabilities": any(
            "ALL" not in (each.get("capabilities") or {}).get("drop", [])
            or set((each.get("capabilities") or {}).get("add") or []) - {"NET_BIND_SERVICE"}
            for each in contexts
        ),
        "volumes": any(not VOLUMES & each.keys() for each in spec.get("volumes", [])),
        "hostPort": any(port.get("hostPort") for each in containers for port in each.get("ports", [])),
        "runAsNonRoot": any(each.get("runAsNonRoot") is False for each in contexts)
        or any(each.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True for each in contexts),
        "runAsUser": any(each.get("runAsUser") == 0 for each in (pod, *contexts)),
        "seccompProfile": any(
            (each.get("seccompProfile") or {}).get("type", seccomp) not in ("RuntimeDefault", "Localhost")
            for each in contexts
        ),
    }
    return [name for name, violated in checks.items() if violated]
