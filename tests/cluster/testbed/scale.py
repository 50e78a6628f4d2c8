"""Fake nodes, run by kwok: a pod on them is only an API object, so that a thousand jobs fit on one machine.

`PLACEMENT` schedules a pod there. No program runs; the pod's annotations determine when and how it ends.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import build, controlplane, manifests, process
from .layout import CONFIG, KUBECONFIG, Choice, TestbedError
from .network import CONTROL

# For a pod template's spec: selects the fake nodes and tolerates their taint.
PLACEMENT: dict[str, Any] = {
    "nodeSelector": {"type": "kwok"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
}
# Annotations of a pod: how long it "runs" (a Go duration, default 1s), the completion index of its Job that fails
# (default: none), and the exit code of that index (default: 1).
RUN_FOR = "stepset.test/run-for"
FAIL_INDEX = "stepset.test/fail-index"
EXIT_CODE = "stepset.test/exit-code"

_END_OF_POD = f"""
{{{{ $now := Now }}}}
{{{{ $root := . }}}}
{{{{ $notes := or .metadata.annotations dict }}}}
{{{{ $index := or (index $notes "batch.kubernetes.io/job-completion-index") "" }}}}
{{{{ $code := "0" }}}}
{{{{ if and (ne $index "") (eq $index (or (index $notes "{FAIL_INDEX}") "none")) }}}}
{{{{ $code = or (index $notes "{EXIT_CODE}") "1" }}}}
{{{{ end }}}}
containerStatuses:
{{{{ range $position, $item := .spec.containers }}}}
- image: {{{{ $item.image | Quote }}}}
  name: {{{{ $item.name | Quote }}}}
  ready: false
  restartCount: 0
  started: false
  state:
    terminated:
      exitCode: {{{{ $code }}}}
      finishedAt: {{{{ $now | Quote }}}}
      reason: {{{{ if eq $code "0" }}}}Completed{{{{ else }}}}Error{{{{ end }}}}
      startedAt: {{{{ $root.status.startTime | Quote }}}}
{{{{ end }}}}
phase: {{{{ if eq $code "0" }}}}Succeeded{{{{ else }}}}Failed{{{{ end }}}}
"""


@contextmanager
def nodes(choice: Choice, count: int) -> Iterator[None]:
    """Provides fake nodes while the block runs, to one caller at a time.

    Args:
        choice, count: as for `add_nodes`.
    """
    with (CONFIG / "kwok.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            add_nodes(choice, count)
            yield
        finally:
            remove_nodes(choice)


def add_nodes(choice: Choice, count: int) -> None:
    """Starts kwok if it is not running, and adds fake nodes.

    Args:
        choice: the running cluster's.
        count: the number of nodes (kwok-0, kwok-1, ...); each accepts 1,000 pods.

    Raises:
        TestbedError: `count` is not positive, or kwok does not make the nodes Ready.
    """
    if count < 1:
        raise TestbedError(f"--nodes {count}: at least one")
    build.ensure([f"kubernetes-{choice.kubernetes}", "kwok"])
    if process.pid_of("kwok") is None:
        _start()
    present = {
        item["metadata"]["name"]
        for item in json.loads(controlplane.kubectl(choice, "get", "nodes", "-o", "json"))["items"]
    }
    names = [f"kwok-{index}" for index in range(count)]
    missing = [_node(name) for name in names if name not in present]
    if missing:
        controlplane.kubectl(choice, "create", "-f", "-", text=manifests.bundle(missing))
    nodes = [f"node/{name}" for name in names]
    controlplane.kubectl(choice, "wait", "--for=condition=Ready", "--timeout=180s", *nodes)


def remove_nodes(choice: Choice) -> None:
    """Removes all fake nodes and stops kwok, so that other tests' pods are spread over real nodes only."""
    controlplane.kubectl(choice, "delete", "nodes", "-l", "type=kwok")
    process.stop("kwok")


def _start() -> None:
    # kwok's own stages, except that a pod's annotations determine its end.
    stages = manifests.load("kwok", "stages-node") + [
        stage for stage in manifests.load("kwok", "stages-pod") if stage["metadata"]["name"] != "pod-complete"
    ]
    config = CONFIG / "kwok.yaml"
    config.write_text("\n---\n".join(json.dumps(stage) for stage in [*stages, _end_stage()]))
    program = build.binary("kwok", "kwok")
    command: list[str | Path] = [
        program, "--kubeconfig", KUBECONFIG, "--config", config,
        "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40", "--server-address=127.0.0.1:10247",
    ]  # fmt: skip
    process.start("kwok", command, inside=CONTROL)


def _end_stage() -> manifests.Object:
    running = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]},
    ]
    delay = {"durationMilliseconds": 1000, "durationFrom": {"expressionFrom": f'.metadata.annotations["{RUN_FOR}"]'}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "pod-end"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": running},
            "delay": delay,
            "next": {"statusTemplate": _END_OF_POD},
        },
    }


def _node(name: str) -> manifests.Object:
    amount = {"cpu": "1000", "memory": "4Ti", "pods": "1000", "nvidia.com/gpu": "64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": amount, "allocatable": amount},
    }
