"""What the tests do with the backend: submit pipelines, read runs, steps and trainings, delete and evict pods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import kfp
import kfp_server_api
from kfp import compiler
from tools.kfp_backend.layout import NAMESPACE

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.cluster.testbed.pod import Mount

NODE_NAME = "workflows.argoproj.io/node-name"
RUN_OF_TRAINING, RUN_OF_POD = "kfp.stepset.dev/run", "pipeline/runid"
"""Labels whose value is the id of the pipeline run."""
OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")

Object = dict[str, Any]


@dataclass
class Backend:
    """A real KFP backend.

    Args:
        cluster: the test cluster.
        url: address of KFP's API server.
        shared: a directory that training pods and the test see at the same path.
    """

    cluster: Cluster
    url: str
    shared: Path
    _count: int = field(default=0)

    @cached_property
    def client(self) -> kfp.Client:
        """KFP's own client."""
        return kfp.Client(host=self.url, namespace=NAMESPACE)

    def settings(self) -> dict[str, Any]:
        """Returns inputs of distributed_train with which training pods run on the test cluster."""
        path = f"{Path(self.cluster.python).parent}:/usr/local/bin:/usr/bin:/bin"
        return {
            "framework": "plain",
            "procs_per_node": 1,
            "image": self.cluster.image,
            "env": {"PATH": path},
            "pod_template": self.cluster.pod_template("node", [Mount(str(self.shared), read_only=False)]),
            "base_dir": self.shared,
            "script": "train.py",
        }

    def submit(self, pipeline: Any, *, caching: bool | None = False, **arguments: Any) -> str:
        """Compiles and submits a pipeline; returns the run's id.

        Args:
            pipeline: the pipeline.
            caching: whether steps may use KFP's cache; None: as each task says.
            arguments: values of the pipeline's parameters.
        """
        self._count += 1
        package = str(self.shared / f"pipeline-{self._count}.yaml")
        compiler.Compiler().compile(pipeline, package)
        run = self.client.create_run_from_pipeline_package(package, arguments=arguments, enable_caching=caching)
        return str(run.run_id)

    def tasks(self, run: str) -> dict[str, list[str]]:
        """Returns the states of a run's tasks by their names; a task in a loop has several."""
        found: dict[str, list[str]] = {}
        for each in self.client.get_run(run).run_details.task_details or ():
            found.setdefault(str(each.display_name), []).append(str(each.state))
        return found

    def state(self, run: str) -> str:
        """Returns KFP's state of a pipeline run, such as RUNNING."""
        return str(self.client.get_run(run).state)

    def wait(self, run: str, timeout: float = 600.0) -> str:
        """Waits until a pipeline run is over; returns its state."""
        until = time.monotonic() + timeout
        while (state := self.state(run)) not in OVER:
            assert time.monotonic() < until, f"run {run} is {state} after {timeout:.0f} s\n{self.describe(run)}"
            time.sleep(1)
        return state

    def terminate(self, run: str) -> str:
        """Terminates a pipeline run, as a user does; returns its last state."""
        self.client.terminate_run(run)
        return self.wait(run)

    def retry(self, run: str) -> None:
        """Retries a pipeline run that has failed or was terminated, as a user does."""
        # kfp.Client has no method for it.
        configuration = kfp_server_api.Configuration(host=self.url)
        kfp_server_api.RunServiceApi(kfp_server_api.ApiClient(configuration)).run_service_retry_run(run)

    def steps(self, run: str = "", part: str = ".executor") -> list[Object]:
        """Returns the pods whose node has `part` in its name; default: the steps' own pods.

        Args:
            run: the pipeline run; empty: all.
            part: a part of a node's name.
        """
        pods = self.cluster.get("pods", NAMESPACE, f"{RUN_OF_POD}={run}" if run else RUN_OF_POD)["items"]
        return [pod for pod in pods if part in node_name(pod)]

    def running_step(self, run: str, part: str = ".executor", timeout: float = 300.0) -> Object:
        """Waits until a step's program runs; returns its pod."""
        until = time.monotonic() + timeout
        while not (running := [pod for pod in self.steps(run, part) if is_running(pod)]):
            assert time.monotonic() < until, f"no step of {run} runs after {timeout:.0f} s\n{self.describe(run)}"
            time.sleep(0.2)
        return running[0]

    def trainings(self, run: str = "") -> list[Object]:
        """Returns the JobSets that the steps of a pipeline run have created; of all runs by default."""
        return list(
            self.cluster.get("jobsets", NAMESPACE, f"{RUN_OF_TRAINING}={run}" if run else RUN_OF_TRAINING)["items"]
        )

    def log(self, pod: str) -> str:
        """Returns a step's output, or the error of the request."""
        try:
            return self.cluster.logs(pod, NAMESPACE, "main")
        except TestbedError as error:
            return str(error)

    def wait_for_line(self, run: str, text: str, timeout: float = 300.0) -> Object:
        """Waits until the output of a running step contains a text; returns its pod."""
        until = time.monotonic() + timeout
        while True:
            for pod in self.steps(run):
                if text in self.log(pod["metadata"]["name"]):
                    return pod
            assert time.monotonic() < until, f"no {text!r} in the log of a step\n{self.describe(run)}"
            time.sleep(0.5)

    def wait_until(self, run: str, what: str, read: Callable[[], Any], expected: Any, timeout: float = 300.0) -> None:
        """Waits until `read` returns `expected`; a failure shows the last value and the state of the pipeline run."""
        end = time.monotonic() + timeout
        while (value := read()) != expected:
            assert time.monotonic() < end, (
                f"no {what} after {timeout:.0f} s: {value} instead of {expected}\n{self.describe(run)}"
            )
            time.sleep(0.5)

    def delete_pod(self, pod: Object, *, grace: int | None = None) -> bool:
        """Deletes a pod, with grace 0 at once; returns False if it no longer exists."""
        body: Object = {} if grace is None else {"gracePeriodSeconds": grace}
        return self._request("DELETE", pod, "", body)

    def evict_pod(self, pod: Object) -> bool:
        """Evicts a pod, as a drain does; returns False if it no longer exists."""
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        return self._request(
            "POST", pod, "/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        )

    def _request(self, method: str, pod: Object, suffix: str, body: Object) -> bool:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}{suffix}"
        body = body if suffix else {**body, "preconditions": {"uid": pod["metadata"]["uid"]}}
        try:
            self.cluster.objects.send(method, path, body)
        except TestbedError as error:
            if "(NotFound)" in str(error) or "(Conflict)" in str(error):
                return False
            raise
        return True

    def describe(self, run: str) -> str:
        """Returns what a failed test needs: the workflow's nodes, the pods, the trainings, and the steps' logs."""
        pods = self.steps(run, "")
        workflows = self.cluster.get("workflows.argoproj.io", NAMESPACE, f"{RUN_OF_POD}={run}")["items"]
        nodes = [node for each in workflows for node in each.get("status", {}).get("nodes", {}).values()]
        lines = [f"node {node['name']} {node.get('phase')} {node.get('message', '')}" for node in nodes]
        lines += [f"{pod['metadata']['name']} {pod['status'].get('phase')} {node_name(pod)}" for pod in pods]
        lines += [
            f"JobSet {each['metadata']['name']} {json.dumps(each.get('status', {}))[:300]}"
            for each in self.trainings(run)
        ]
        lines += [
            f"--- {pod['metadata']['name']}\n{self.log(pod['metadata']['name'])[-1500:]}" for pod in self.steps(run)
        ]
        return "\n".join(lines)


def node_name(pod: Object) -> str:
    """Returns the name of the node of Argo's workflow to which a pod belongs."""
    return str(pod["metadata"].get("annotations", {}).get(NODE_NAME, ""))


def is_running(pod: Object) -> bool:
    """Returns whether the main container of a step runs, and the pod is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    statuses = pod["status"].get("containerStatuses") or ()
    return any(each["name"] == "main" and "running" in each["state"] for each in statuses)


def is_live(jobset: Object) -> bool:
    """Returns whether a training is neither suspended nor over nor being deleted."""
    over = any(
        each["type"] in ("Completed", "Failed") and each["status"] == "True"
        for each in jobset.get("status", {}).get("conditions", ())
    )
    return not (over or jobset["spec"].get("suspend") or jobset["metadata"].get("deletionTimestamp"))
