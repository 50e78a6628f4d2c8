"""Detects values of a job that contradict `security: restricted`.

The rules for `pod_template` come from k8s.io/pod-security-admission v0.36 policy/check_*.go, for the levels baseline
and restricted, without the exceptions for user namespaces. Missing fields are not reported, because stepset adds all
fields that `restricted` requires (`pods/security.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.spec.template import pod_spec
from stepset.targets.pods.security import CONTAINER_KINDS, RESTRICTED
from stepset.unstructured import part, rows

_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_SECCOMP = ("RuntimeDefault", "Localhost")
_APP_ARMOR = ("RuntimeDefault", "Localhost")
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PRIVILEGED_PORTS = 1024
_FIRST_PORT = "net.ipv4.ip_unprivileged_port_start"
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        _FIRST_PORT,
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_HANDLERS = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)
_CLAIM = "use a PersistentVolumeClaim (storage), a configMap, secret, emptyDir or the like"
_OMIT = "leave it out"

Problem = tuple[str, Any, str]
"""A tuple of the path of a field, the value of the field, and advice for the user."""


def restricted_problems(template: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields a line for each value that `restricted` does not admit.

    Args:
        template: the `pod_template` of the job, in the form of a Kubernetes pod template with `metadata` and `spec`.
        place: the path of the pod template's `spec` in the job file.
    """
    annotations = part(template, "metadata", "annotations")
    for key, value in annotations.items():
        allowed = str(value) == "runtime/default" or str(value).startswith("localhost/")
        if str(key).startswith(_APP_ARMOR_ANNOTATION) and not allowed:
            yield _line("pod_template.metadata.annotations", (str(key), value, "use runtime/default, or leave it out"))
    for problem in _pod(part(template, "spec")):
        yield _line(place, problem)


def ssh_port_notes(job: TrainingJob) -> Iterator[str]:
    """Yields a note if the ssh servers may not be able to listen on their port, because they do not run as root.

    The first port that is available to all users is the sysctl `net.ipv4.ip_unprivileged_port_start` of the pod. The
    pod can set this sysctl. Some container runtimes set the sysctl to 0.
    """
    if job.security != RESTRICTED or not isinstance(job.framework, MPI):
        return
    sysctls = rows(part(pod_spec(job.pod_template), "securityContext"), "sysctls")
    lowered = any(sysctl.get("name") == _FIRST_PORT for sysctl in sysctls)
    port = job.framework.ssh_port
    if port < _PRIVILEGED_PORTS and not lowered:
        yield (
            f"framework.ssh_port: with security: {RESTRICTED} the ssh servers do not run as root and may not be able to"
            f" listen on port {port}; give {_PRIVILEGED_PORTS} or above"
        )


def _line(place: str, problem: Problem) -> str:
    field, value, remedy = problem
    return f"{place}.{field}: {value!r} contradicts security: {RESTRICTED}; {remedy}, or leave security out"


def _pod(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for name in _HOST_FIELDS:
        if spec.get(name):
            yield name, spec[name], _OMIT
    for number, volume in enumerate(_rows(spec, "volumes")):
        for source in volume:
            if source not in ("name", "$patch") and source not in _VOLUMES and volume[source] is not None:
                yield f"volumes.{volume.get('name', number)}.{source}", volume[source], _CLAIM
    context = part(spec, "securityContext")
    yield from _context(context)
    for sysctl in _rows(context, "sysctls"):
        if str(sysctl.get("name")) not in _SYSCTLS:
            yield "securityContext.sysctls", sysctl.get("name"), _OMIT
    for kind in CONTAINER_KINDS:
        for number, row in enumerate(_rows(spec, kind)):
            for field, value, remedy in _container(row):
                yield f"{kind}.{row.get('name', number)}.{field}", value, remedy


def _container(row: Mapping[str, Any]) -> Iterator[Problem]:
    context = part(row, "securityContext")
    yield from _context(context)
    if context.get("privileged"):
        yield "securityContext.privileged", context["privileged"], _OMIT
    if context.get("allowPrivilegeEscalation"):
        yield "securityContext.allowPrivilegeEscalation", context["allowPrivilegeEscalation"], _OMIT
    if context.get("procMount") not in (None, "Default"):
        yield "securityContext.procMount", context["procMount"], _OMIT
    capabilities = part(context, "capabilities")
    added = capabilities.get("add")
    if isinstance(added, list) and any(each != "NET_BIND_SERVICE" for each in added):
        yield "securityContext.capabilities.add", added, "only NET_BIND_SERVICE may be added"
    dropped = capabilities.get("drop")
    if isinstance(dropped, list) and "ALL" not in dropped:
        yield "securityContext.capabilities.drop", dropped, "drop ALL, or leave it out"
    for port in _rows(row, "ports"):
        if port.get("hostPort"):
            yield "ports.hostPort", port["hostPort"], _OMIT
    for path in _HANDLERS:
        handler = part(row, *path)
        for action in ("httpGet", "tcpSocket"):
            if host := part(handler, action).get("host"):
                yield ".".join((*path, action, "host")), host, _OMIT


def _context(context: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields the problems of the fields that are common to the security contexts of pods and containers."""
    if context.get("runAsNonRoot") is False:
        yield "securityContext.runAsNonRoot", False, _OMIT
    if context.get("runAsUser") == 0:
        yield "securityContext.runAsUser", 0, "give the number of a user other than root"
    for field, allowed in (("seccompProfile", _SECCOMP), ("appArmorProfile", _APP_ARMOR)):
        kind = part(context, field).get("type")
        if kind is not None and kind not in allowed:
            yield f"securityContext.{field}.type", kind, f"use {' or '.join(allowed)}, or leave it out"
    labels = part(context, "seLinuxOptions")
    if labels.get("type") is not None and labels["type"] not in _SELINUX_TYPES:
        yield "securityContext.seLinuxOptions.type", labels["type"], f"use one of {', '.join(_SELINUX_TYPES[1:])}"
    for field in ("user", "role"):
        if labels.get(field):
            yield f"securityContext.seLinuxOptions.{field}", labels[field], _OMIT
    if part(context, "windowsOptions").get("hostProcess"):
        yield "securityContext.windowsOptions.hostProcess", True, _OMIT


def _rows(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [row for row in rows(data, key) if row.get("$patch") != "delete"]
