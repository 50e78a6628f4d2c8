"""Records the watch events of a real cluster while runs succeed, fail and wait. The tests of this package replay them.

    python -m tests.watch.cluster.record [SCENARIO...]     # all of scenarios.py, or those named

Needs the cluster of docs/testing/cluster.md. Each scenario runs in its own namespace while every relevant kind of
object is watched. The events are written to recorded/SCENARIO.json in the order of arrival, with only the changed parts
of each object (streams.py joins them). They are trimmed to the fields that a status could read, and contain no paths of
the recording machine.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kubernetes import client, config

from tests.cluster.testbed import handle
from tests.cluster.testbed.handle import Cluster

RECORDED = Path(__file__).parent / "recorded"

Object = dict[str, Any]

_WATCHED = (
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/events",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads",
)
_AGENT = "/stepset/agent/agent.py"
_QUIET = 1.5
"""Seconds without a change after which a scenario is over."""


class Recorder:
    """Watches a namespace and records the changes."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        settings = client.Configuration()
        config.load_kube_config(cluster.kubeconfig, client_configuration=settings)
        self._cluster = cluster
        self._namespace = namespace
        self._host = settings.host
        self._client = client.ApiClient(settings)
        self._lock = threading.Lock()
        self._changes: list[tuple[str, Object]] = []
        self._last: dict[str, Object] = {}
        self._latest = time.monotonic()
        self._over = False
        for path in _WATCHED:
            threading.Thread(target=self._watch, args=(path.format(namespace),), daemon=True).start()
        time.sleep(0.5)

    def _watch(self, path: str) -> None:
        pool = self._client.rest_client.pool_manager
        url = f"{self._host}{path}?watch=1&timeoutSeconds=300"
        stream = pool.request("GET", url, preload_content=False, timeout=310)
        rest = b""
        while chunk := stream.read1(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                self._take(json.loads(line))

    def _take(self, event: Object) -> None:
        verb, full = event["type"], event["object"]
        if verb not in ("ADDED", "MODIFIED", "DELETED"):
            return
        each = self._portable(trimmed(full))
        with self._lock:
            if self._over:
                return
            uid = full["metadata"]["uid"]
            if verb != "DELETED" and self._last.get(uid) == each:
                return
            changed = {name: part for name, part in each.items() if self._last.get(uid, {}).get(name) != part}
            self._last[uid] = each
            self._changes.append((verb, {"uid": uid, **changed}))
            self._latest = time.monotonic()

    def _portable(self, each: Object) -> Object:
        text = json.dumps(each).replace(self._namespace, "ns")
        text = re.sub(r'(/[^/" \\\\]+)+/bin/python3?(\.\d+)?', "/usr/bin/python3", text)
        text = re.sub(r'(/[^/" \\\\]+)+/lib/python3(\.\d+)?/', "/usr/lib/python3/", text)
        found: Object = json.loads(text)
        return found

    def settle(self, seconds: float = _QUIET) -> None:
        """Waits until no more changes arrive."""
        while time.monotonic() - self._latest < seconds:
            time.sleep(0.1)

    def write(self, name: str) -> None:
        """Writes the stream to a file, and stops recording: the deletion of the namespace is not part of it."""
        with self._lock:
            self._over = True
            lines = ",\n".join(json.dumps([verb, each], separators=(",", ":")) for verb, each in self._changes)
        machine = re.search(r"/(work|root|home|opt)/", lines)
        where = lines[machine.start() - 80 : machine.start() + 80] if machine else ""
        assert machine is None, f"{name} contains a path of this machine: {where}"
        (RECORDED / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def trimmed(each: Object) -> Object:
    """An object without the fields that no status could read."""
    each = json.loads(json.dumps(each))
    each["metadata"] = _metadata(each["metadata"])
    kind, spec, status = each["kind"], each.get("spec", {}), each.get("status", {})
    if kind == "Pod":
        each["spec"] = _pod_spec(spec)
        kept = ("phase", "reason", "message", "conditions", "startTime", "containerStatuses", "initContainerStatuses")
        each["status"] = status = {name: status[name] for name in kept if name in status}
        for row in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())):
            for name in set(row) - {"name", "state", "lastState", "ready", "restartCount"}:
                del row[name]
            for state in (*row.get("state", {}).values(), *row.get("lastState", {}).values()):
                state.pop("containerID", None)
    elif kind in ("Job", "StatefulSet"):
        for name in ("template", "selector", "volumeClaimTemplates", "manualSelector", "updateStrategy"):
            spec.pop(name, None)
        status.pop("uncountedTerminatedPods", None)
    elif kind == "JobSet":
        for row in spec["replicatedJobs"]:
            row["template"] = {"spec": {k: v for k, v in row["template"]["spec"].items() if k != "template"}}
    elif kind == "TrainJob":
        spec["trainer"] = {"numNodes": spec["trainer"]["numNodes"]}
    elif kind == "Workload":
        spec.pop("podSets", None)
        status.pop("admission", None)
    elif kind == "Event":
        each.pop("source", None)
        each["involvedObject"] = {name: each["involvedObject"].get(name) for name in ("kind", "name", "uid")}
    for row in status.get("conditions", ()):
        for name in ("lastProbeTime", "observedGeneration"):
            row.pop(name, None)
    return each


_MARKS = re.compile(r"stepset\.dev/|.*/(restart-attempt|replicatedjob-name|jobset-(uid|name)|job-completion-index)$")
_MORE_MARKS = re.compile(r".*/(pod-index|queue-name|job-restart-attempt)$")


def _metadata(meta: Object) -> Object:
    kept = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
    found = {name: meta[name] for name in kept if name in meta}
    for kind in ("labels", "annotations"):
        marks = {k: v for k, v in meta.get(kind, {}).items() if _MARKS.match(k) or _MORE_MARKS.match(k)}
        if marks:
            found[kind] = marks
    owners = meta.get("ownerReferences", ())
    if owners:
        rows = [{name: row[name] for name in ("kind", "name", "uid", "controller") if name in row} for row in owners]
        found["ownerReferences"] = rows
    return found


def _pod_spec(spec: Object) -> Object:
    kept = {name: spec[name] for name in ("nodeName", "restartPolicy", "activeDeadlineSeconds") if name in spec}
    containers = [
        {"name": row["name"], **({"command": [_word(word) for word in row["command"][:4]]} if "command" in row else {})}
        for row in spec["containers"]
    ]
    init = [
        {name: row[name] for name in ("name", "restartPolicy") if name in row} for row in spec.get("initContainers", ())
    ]
    return {**kept, **({"initContainers": init} if init else {}), "containers": containers}


def _word(word: str) -> str:
    """A word of a command, shortened; it only matters whether a script runs the agent."""
    if len(word) <= 60:
        return word
    return f"{word[:20]} ... {_AGENT} ..." if _AGENT in word else f"{word[:20]} ..."


def main(names: list[str]) -> None:
    from tests.watch.cluster.scenarios import SCENARIOS, Stage

    cluster = handle.find()
    RECORDED.mkdir(exist_ok=True)
    for name in names or list(SCENARIOS):
        start = time.monotonic()
        with cluster.namespace("record") as namespace:
            recorder = Recorder(cluster, namespace)
            stage = Stage(cluster, namespace)
            try:
                SCENARIOS[name](stage)
                recorder.settle()
                recorder.write(name)
            finally:
                stage.close()
        size = (RECORDED / f"{name}.json").stat().st_size
        print(f"{name}: {time.monotonic() - start:.0f} s, {size // 1024} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
