"""What a cluster has to say about a test that failed on it: it is gone when somebody reads of the failure.

Called by tests/conftest.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.cluster.testbed import process
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import LOGS, PIDS, TestbedError

_USUAL = re.compile(r"I\d{4} ")
"""How lines begin that Kubernetes' own components write of what is as it should be."""
SHOWN = "pods,services,endpointslices"
LINES = 10
"""Shown of each component's log, of those that name the namespace, and of the namespace's events."""


def evidence(funcargs: Mapping[str, Any]) -> str:
    """The objects of a test's namespaces, their events, and what the control plane wrote of them.

    Args:
        funcargs: the values of the test's fixtures, `cluster` among them.
    """
    cluster = funcargs["cluster"]
    return "\n".join(_of(cluster, name) for name in sorted(set(_namespaces(funcargs))))


def _namespaces(funcargs: Mapping[str, Any]) -> list[str]:
    # Who has a namespace says so in this attribute, be it that of its runs.
    owners = [owner for value in funcargs.values() for owner in (value, getattr(value, "runs", None))]
    found = [funcargs.get("namespace"), *(getattr(owner, "namespace", None) for owner in owners)]
    return [name for name in found if isinstance(name, str)]


def _of(cluster: Cluster, namespace: str) -> str:
    def asked(*arguments: str) -> str:
        try:
            return cluster.kubectl(*arguments, "-n", namespace, timeout=20).rstrip()
        except TestbedError as error:
            return str(error)

    objects = asked("get", SHOWN, "-o", "wide")
    events = asked("get", "events", "--sort-by=.lastTimestamp").splitlines()[-LINES:]
    ours = [*_died(), *_logged(namespace)] if cluster.choice else []
    return "\n".join([f"namespace {namespace}", objects, *events, *ours])


def _died() -> list[str]:
    """Components that are not there any more though nobody stopped them, and what they wrote last."""
    found: list[str] = []
    for name in sorted(path.name for path in PIDS.iterdir() if process.pid_of(path.name) is None):
        log = LOGS / f"{name}.log"
        last = log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []
        found += [f"{name} has died:", *(f"{name}: {line[:400]}" for line in last)]
    return found


def _logged(namespace: str) -> list[str]:
    """What the components wrote of a namespace."""
    found: list[str] = []
    for path in sorted(LOGS.glob("*.log")):
        with path.open(errors="replace") as file:
            lines = [line.rstrip()[:400] for line in file if namespace in line and not _USUAL.match(line)]
        found += [f"{path.stem}: {line}" for line in lines[-LINES:]]
    return found
