"""Creates runs whose pods do nothing, without the controllers of JobSet and Kubernetes.

The controllers would need minutes to create thousands of pods.

This module creates each JobSet, its Job and its pods directly, in the form in which the controllers would create them.
`spec.managedBy` contains the name of a controller that does not exist. Therefore the controllers ignore the
objects. The pods are bound to the fake nodes of tests/cluster/testbed/scale.py. kwok reports these pods as running.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.cluster.testbed import scale
from tests.cluster.testbed.handle import Cluster

from stepset.api import render

NODE_PODS = 900
"""The number of pods on each fake node. A fake node can have 1,000 pods."""

_CONNECTIONS = 6
_MANAGED_BY = "stepset.test/benchmark"
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_PODS = "/api/v1/namespaces/{}/pods"

Object = dict[str, Any]


class Server:
    """A client of the cluster's API server that sends many small requests from several threads.

    Args:
        kubeconfig: the path of the kubeconfig file.
    """

    def __init__(self, kubeconfig: str) -> None:
        from kubernetes import config

        self._api = config.new_client_from_config(config_file=kubeconfig)

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Sends a request and returns the decoded response.

        Args:
            method: the HTTP method.
            path: the path with its query.
            body: the object that is sent as JSON.
            kind: the content type of the body.

        Raises:
            RuntimeError: the server refuses the request.
        """
        answer = self._request(method, path, body, kind, preload_content=True)
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: HTTP {answer.status}: {answer.data[:500]!r}")
        found: Object = json.loads(answer.data)
        return found

    def stream(self, path: str) -> Any:
        """Returns the open response of a watch. The caller must close the response."""
        return self._request("GET", path, None, "application/json", preload_content=False)

    def _request(self, method: str, path: str, body: Object | None, kind: str, *, preload_content: bool) -> Any:
        data = None if body is None else json.dumps(body)
        return self._api.rest_client.pool_manager.request(
            method,
            self._api.configuration.host + path,
            body=data,
            headers={"Content-Type": kind},
            timeout=600.0,
            preload_content=preload_content,
        )


@dataclass(frozen=True)
class FakeRuns:
    """Runs on fake nodes.

    Args:
        server: the API server.
        namespace: a namespace that contains only these runs.
        workloads: the reference of each run, in the form in which a worker passes it to the trigger.
        pods: the names of all pods.
    """

    server: Server
    namespace: str
    workloads: tuple[Object, ...]
    pods: tuple[str, ...] = ()

    def finish(self) -> None:
        """Reports every pod as succeeded, and then every JobSet as completed.

        Sends one request for each object.
        """
        pods, jobsets = _PODS.format(self.namespace), _JOBSETS.format(self.namespace)
        names = [each["metadata"]["name"] for each in self.workloads]
        _parallel(lambda pod: self.server.send("PATCH", f"{pods}/{pod}/status", _end(), _MERGE), self.pods)
        _parallel(lambda name: self.server.send("PATCH", f"{jobsets}/{name}/status", _completed(), _MERGE), names)

    @contextmanager
    def counted(self) -> Iterator[EventCount]:
        """Counts the watch events of the pods in the namespace.

        Watch events of JobSets are not counted.
        """
        count = EventCount(self.server, _PODS.format(self.namespace))
        try:
            yield count
        finally:
            count.close()


class EventCount:
    """A watch that counts its events.

    Args:
        server: the API server.
        path: the path of the collection.

    Attributes:
        events: the number of events so far.
    """

    def __init__(self, server: Server, path: str) -> None:
        self.events = 0
        version = server.send("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        self._answer = server.stream(f"{path}?watch=true&timeoutSeconds=3600&resourceVersion={version}")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the watch."""
        self._answer.shutdown()
        self._thread.join()
        self._answer.close()

    def _read(self) -> None:
        with suppress(Exception):  # another thread closes the response
            for chunk in self._answer.stream(65536, decode_content=False):
                self.events += chunk.count(b"\n")


@contextmanager
def fake_runs(cluster: Cluster, names: Sequence[str], pods: int) -> Iterator[FakeRuns]:
    """A context manager that creates runs in a new namespace, and deletes the runs and the namespace afterwards.

    Args:
        cluster: a cluster with enough fake nodes.
        names: the names of the runs.
        pods: the number of pods of each run.
    """
    server = Server(cluster.kubeconfig)
    with cluster.namespace("bench") as namespace:
        places = _places(server, len(names) * pods)
        objects = [_objects(name, pods, namespace) for name in names]
        workloads = _create(server, _JOBSETS.format(namespace), (jobset for jobset, _, _ in objects))
        owners = (_owned(job, top) for (_, job, _), top in zip(objects, workloads, strict=True))
        jobs = _create(server, _JOBS.format(namespace), owners)
        pods_created = [
            _placed(pod, next(places), job, top)
            for (_, _, template), job, top in zip(objects, jobs, workloads, strict=True)
            for pod in _pods(template, pods)
        ]
        _create(server, _PODS.format(namespace), pods_created)
        runs = FakeRuns(server, namespace, tuple(map(_reference, workloads)))
        running = f"{_PODS.format(namespace)}?limit=1&fieldSelector=status.phase%21%3DRunning"
        cluster.wait("all pods", lambda: not server.send("GET", running)["items"], timeout=300)
        try:
            yield replace(runs, pods=tuple(pod["metadata"]["name"] for pod in pods_created))
        finally:
            _delete_pods(server, namespace)
            for path in (_JOBS, _JOBSETS):
                server.send("DELETE", path.format(namespace), {"propagationPolicy": "Background"})
    cluster.kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=600s", timeout=660)


def _delete_pods(server: Server, namespace: str) -> None:
    """Deletes all pods. If there are ten thousand pods, this may take several requests."""
    path = _PODS.format(namespace)
    while server.send("GET", f"{path}?limit=1")["items"]:
        with suppress(RuntimeError):  # status 504; the next request deletes the remaining pods
            server.send("DELETE", path, {"gracePeriodSeconds": 0})


def _objects(name: str, pods: int, namespace: str) -> tuple[Object, Object, Object]:
    """Returns the JobSet and the Job of a run, and the template of the run's pods."""
    job = {
        "name": name,
        "framework": "plain",
        "num_nodes": pods,
        "image": "none",
        "command": ["true"],
        "agent": False,
        "annotations": {scale.RUN_FOR: "24h"},
        "pod_template": scale.PLACEMENT,
    }
    jobset = copy.deepcopy(dict(render(job, namespace=namespace)[-1]))
    jobset["spec"]["managedBy"] = _MANAGED_BY
    replicated = jobset["spec"]["replicatedJobs"][0]
    job_labels = {
        _JOBSET_NAME: name,
        "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    spec = copy.deepcopy(replicated["template"]["spec"])
    for part in (spec["template"]["metadata"], meta := {"name": f"{name}-{replicated['name']}-0"}):
        part["labels"] = {**part.get("labels", {}), **job_labels}
        part["annotations"] = {**part.get("annotations", {}), **job_labels}
    # The API server calls JobSet's webhooks for each pod with this label. This doubles the time to create a pod.
    del spec["template"]["metadata"]["labels"][_JOBSET_NAME]
    found = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "managedBy": _MANAGED_BY}}
    return jobset, found, spec["template"]


def _pods(template: Object, count: int) -> Iterator[Object]:
    """Yields the pods that the Job controller would create from a template."""
    for index in range(count):
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        for marks in (pod["metadata"]["labels"], pod["metadata"]["annotations"]):
            marks["batch.kubernetes.io/job-completion-index"] = str(index)
        yield pod


def _placed(pod: Object, node: str, job: Object, top: Object) -> Object:
    metadata, name = pod["metadata"], job["metadata"]["name"]
    index = metadata["labels"]["batch.kubernetes.io/job-completion-index"]
    metadata["name"] = f"{name}-{index}"
    metadata["labels"] |= {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
        "jobset.sigs.k8s.io/jobset-uid": top["metadata"]["uid"],
    }
    pod["spec"]["nodeName"] = node
    return _owned(pod, job)


def _owned(child: Object, owner: Object) -> Object:
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    identity = {key: owner["metadata"][key] for key in ("name", "uid")}
    child["metadata"]["ownerReferences"] = [{**reference, **identity, "controller": True, "blockOwnerDeletion": True}]
    return child


def _places(server: Server, pods: int) -> Iterator[str]:
    """Returns an iterator over node names, with one name for each pod."""
    nodes = server.send("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]
    names = [node["metadata"]["name"] for node in nodes]
    if len(names) * NODE_PODS < pods:
        raise RuntimeError(f"{len(names)} fake nodes have no room for {pods:,} pods")
    return (names[number // NODE_PODS] for number in range(pods))


def _reference(jobset: Object) -> Object:
    metadata = {**{key: jobset["metadata"][key] for key in ("name", "uid")}, "labels": {}, "annotations": {}}
    return {"apiVersion": jobset["apiVersion"], "kind": jobset["kind"], "target": "jobset", "metadata": metadata}


_MERGE = "application/merge-patch+json"


def _end() -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    row = {"name": "node", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    return {"status": {"phase": "Succeeded", "containerStatuses": [{**row, "state": {"terminated": ended}}]}}


def _completed() -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    reason = {"reason": "AllJobsCompleted", "message": "jobset completed successfully", "lastTransitionTime": now}
    return {"status": {"terminalState": "Completed", "conditions": [{"type": "Completed", "status": "True", **reason}]}}


def _create(server: Server, path: str, objects: Iterable[Object]) -> list[Object]:
    return _parallel(lambda each: server.send("POST", path, each), objects)


def _parallel(do: Callable[[Any], Mapping[str, Any]], every: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return list(pool.map(do, every))
