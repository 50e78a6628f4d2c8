"""The state of the cluster after a failed test, for the report: the cluster may be deleted when a user reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.cluster.testbed import process
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import LOGS, PIDS, TestbedError

_USUAL = re.compile(r"I\d{4} ")
"""The start of informational lines in the logs of Kubernetes' own components."""
SHOWN = "pods,services,endpointslices"
LINES = 10
"""The number of lines shown of each component's log and of the namespace's events."""


def evidence(funcargs: Mapping[str, Any]) -> str:
    """The objects of a test's namespaces, their events, and the control plane's log lines about them.

    Args:
        funcargs: the values of the test's fixtures, which include `cluster`.
    """
    cluster = funcargs["cluster"]
    return "\n".join(_of(cluster, name) for name in sorted(set(_namespaces(funcargs))))


def _namespaces(funcargs: Mapping[str, Any]) -> list[str]:
    # A fixture with a namespace has this attribute, or its `runs` do.
    owners = [owner for value in funcargs.values() for owner in (value, getattr(value, "runs", None))]
    found = [funcargs.get("namespace"), *(getattr(owner, "namespace", None) for owner in owners)]
    return [name for name in found if isinstance(name, str)]


def _of(cluster: Cluster, namespace: str) -> str:
    def output(*arguments: str) -> str:
        try:
            return cluster.kubectl(*arguments, "-n", namespace, timeout=20).rstrip()
        except TestbedError as error:
            return str(error)

    objects = output("get", SHOWN, "-o", "wide")
    events = output("get", "events", "--sort-by=.lastTimestamp").splitlines()[-LINES:]
    ours = [*_died(), *_logged(namespace)] if cluster.choice else []
    return "\n".join([f"namespace {namespace}", objects, *events, *ours])


def _died() -> list[str]:
    """Components that ended although no test stopped them, with their last lines."""
    found: list[str] = []
    for name in sorted(path.name for path in PIDS.iterdir() if process.pid_of(path.name) is None):
        log = LOGS / f"{name}.log"
        last = log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []
        found += [f"{name} has died:", *(f"{name}: {line[:400]}" for line in last)]
    return found


def _logged(namespace: str) -> list[str]:
    """The components' log lines about a namespace."""
    found: list[str] = []
    for path in sorted(LOGS.glob("*.log")):
        with path.open(errors="replace") as file:
            lines = [line.rstrip()[:400] for line in file if namespace in line and not _USUAL.match(line)]
        found += [f"{path.stem}: {line}" for line in lines[-LINES:]]
    return found
