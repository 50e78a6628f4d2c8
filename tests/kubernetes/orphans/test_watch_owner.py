"""When the watcher of a run ends the run, and when it does not."""

from __future__ import annotations

import ast
import base64
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.orphans import watch_owner
from stepset.backends.kubernetes.orphans.watch_owner import MAX_NODES, Watcher, workflow_end

STEP = "digits.root.train.executor"
RUN = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/digits-1"
WORKFLOW = "/apis/argoproj.io/v1alpha1/namespaces/ml/workflows/digits"
POD = "/api/v1/namespaces/ml/pods/cli-7"


def workflow(nodes: dict[str, tuple[str, str]], phase: str = "Running", **spec: Any) -> dict[str, Any]:
    """A Workflow whose nodes are name -> (type, phase)."""
    rows = {str(n): {"name": name, "type": kind, "phase": it} for n, (name, (kind, it)) in enumerate(nodes.items())}
    return {"metadata": {"uid": "w", "resourceVersion": "1"}, "spec": spec, "status": {"phase": phase, "nodes": rows}}


def retryable(executor: str, above: str, root: str, pod: str = "Failed") -> dict[str, tuple[str, str]]:
    """The nodes of a step of KFP 2.17, where every level is a Retry: phases of the Retry nodes, and of the pod."""
    return {
        "digits(0).root": ("Retry", root),
        "digits(0).root(0)": ("DAG", root),
        "digits(0).root(0).train": ("Retry", above),
        "digits(0).root(0).train(0)": ("DAG", above),
        "digits(0).root(0).train(0).executor": ("Retry", executor),
        "digits(0).root(0).train(0).executor(0)": ("Pod", pod),
        "digits(0).root(0).other(0).executor(0)": ("Pod", "Running"),
        "digits(0).root(0).training": ("Retry", "Running"),
    }


class TestTheStepOfAWorkflow:
    @pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Error"])
    def test_it_has_ended_with_its_workflow(self, phase: str) -> None:
        assert workflow_end(workflow({}, phase), STEP) == f"its Workflow is {phase}"

    def test_it_has_ended_if_its_workflow_does_not_exist(self) -> None:
        assert workflow_end(None, STEP) == "its Workflow does not exist"

    @pytest.mark.parametrize("phase", ["Failed", "Error", "Skipped", "Omitted", "Succeeded"])
    def test_it_has_ended_with_its_node_if_no_level_is_retryable(self, phase: str) -> None:
        assert workflow_end(workflow({STEP: ("Pod", phase)}), STEP) == f"its step {STEP} is {phase}"

    @pytest.mark.parametrize("phase", ["Pending", "Running", "", "Unknown"])
    def test_it_has_not_ended_while_its_pod_may_run(self, phase: str) -> None:
        assert workflow_end(workflow({STEP: ("Pod", phase)}, shutdown="Terminate"), STEP) == ""

    @pytest.mark.parametrize(
        ("executor", "above", "root"),
        [("Running", "Running", "Running"), ("Error", "Running", "Running"), ("Error", "Error", "Running")],
    )
    def test_it_has_not_ended_while_argo_may_retry_any_level(self, executor: str, above: str, root: str) -> None:
        assert workflow_end(workflow(retryable(executor, above, root, "Error")), STEP) == ""

    def test_it_has_ended_when_no_level_is_retried_although_other_steps_run(self) -> None:
        assert workflow_end(workflow(retryable("Failed", "Failed", "Failed")), STEP) == f"its step {STEP} is Failed"

    @pytest.mark.parametrize("spec", [{"activeDeadlineSeconds": 0}, {"shutdown": "Terminate"}, {"shutdown": "Stop"}])
    def test_a_terminated_workflow_retries_nothing_although_its_exit_handler_runs(self, spec: dict[str, Any]) -> None:
        assert workflow_end(workflow(retryable("Failed", "Failed", "Running"), **spec), STEP)

    def test_another_deadline_is_no_termination(self) -> None:
        assert not workflow_end(workflow(retryable("Failed", "Failed", "Running"), activeDeadlineSeconds=60), STEP)

    def test_it_has_not_ended_if_its_next_try_runs(self) -> None:
        nodes = {**retryable("Running", "Running", "Running", "Error")}
        nodes["digits(0).root(0).train(1).executor(0)"] = ("Pod", "Pending")
        assert workflow_end(workflow(nodes, shutdown="Stop"), STEP) == ""

    def test_an_item_of_a_loop_is_not_its_neighbour(self) -> None:
        nodes = {f"digits(0).root(0).it-its({n}:0.{n})(0).executor(0)": ("Pod", "Failed") for n in range(2)}
        nodes["digits(0).root(0).it-its(2:0.2)(0).executor(0)"] = ("Pod", "Running")
        ended = [bool(workflow_end(workflow(nodes), f"digits.root.it-its({n}:0.{n}).executor")) for n in range(3)]
        assert ended == [True, True, False]

    def test_nodes_may_be_compressed(self) -> None:
        found = workflow({STEP: ("Pod", "Failed")})
        text = json.dumps(found["status"].pop("nodes")).encode()
        found["status"]["compressedNodes"] = base64.b64encode(gzip.compress(text)).decode()
        assert workflow_end(found, STEP)

    def test_nothing_is_known_about_a_step_whose_nodes_are_stored_elsewhere(self) -> None:
        found = workflow({})
        found["status"]["offloadNodeStatusVersion"] = "fnv:1"
        assert workflow_end(found, STEP) == ""


class Cluster:
    """The API server's replies: path -> (HTTP status, body), or an error of the connection; records the writes."""

    def __init__(self, owner: str = POD, **run: Any) -> None:
        self.owner = owner
        self.replies: dict[str, Any] = {RUN: (200, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"})}
        self.run = self.replies[RUN][1]
        self.run |= {"metadata": {"uid": "r", "labels": {}}, "spec": {}, **run}
        self.run["metadata"].setdefault("resourceVersion", "7")
        self.replies[POD] = (200, {"metadata": {"uid": "p"}, "status": {"phase": "Running"}})
        self.writes: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, body: Any = None, accept: str = "") -> Any:
        found = self.replies[path]
        if isinstance(found, Exception):
            raise found
        if method != "GET":
            self.writes.append((method, path, body))
            if method == "PATCH":
                self.run["spec"] |= body["spec"]
        return found

    def watcher(self, how: str = "suspend") -> Watcher:
        owner = {"path": self.owner, "uid": "p"} if self.owner == POD else {"path": WORKFLOW, "uid": "w", "node": STEP}
        return Watcher({"run": {"path": RUN, "uid": "r"}, "owner": owner, "how": how}, self)


def absent(path: str) -> tuple[int, dict[str, Any]]:
    status = {"kind": "Status", "reason": "NotFound", "message": "not found"}
    return 404, {**status, "details": {"name": path.rpartition("/")[2]}}


def test_a_run_is_suspended_when_two_reads_prove_that_its_owner_does_not_exist() -> None:
    cluster = Cluster()
    watcher = cluster.watcher()
    assert [watcher.check() for _ in range(3)] == [False] * 3
    assert cluster.writes == []
    cluster.replies[POD] = absent(POD)
    watcher.check()
    assert cluster.writes == []
    watcher.check()
    reason = {"stepset.dev/orphaned": "its pod does not exist"}
    body = {"metadata": {"uid": "r", "resourceVersion": "7", "annotations": reason}, "spec": {"suspend": True}}
    assert cluster.writes == [("PATCH", RUN, body)]


@pytest.mark.parametrize(
    "reply",
    [
        (503, {"kind": "Status", "reason": "ServiceUnavailable"}),
        (403, {"kind": "Status", "reason": "Forbidden", "message": "no"}),
        (401, {"kind": "Status", "reason": "Unauthorized"}),
        (404, "404 page not found"),
        (404, {"kind": "Status", "reason": "NotFound", "details": {}}),
        (404, {"kind": "Status", "reason": "NotFound", "details": {"name": "other"}}),
        (200, []),
        ConnectionRefusedError("refused"),
        TimeoutError("slow"),
        ValueError("not JSON"),
    ],
)
def test_a_reply_that_proves_nothing_stops_nothing_and_starts_the_count_again(reply: Any) -> None:
    cluster = Cluster()
    watcher = cluster.watcher()
    for owner in (reply, reply, reply, absent(POD), reply, absent(POD)):
        cluster.replies[POD] = owner
        assert watcher.check() is False
    assert cluster.writes == []


def compressed(content: bytes) -> dict[str, Any]:
    return {"compressedNodes": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    "status",
    [
        compressed(b"\x1f\x8b damaged"),
        compressed(gzip.compress(b"{}")[:-1]),
        compressed(gzip.compress(b" " * (MAX_NODES + 1))),
        compressed(gzip.compress(b"[1]")),
        compressed(gzip.compress(b"[" * 200_000)),
        {"compressedNodes": 7},
        {"nodes": [STEP]},
        {"nodes": {"1": {"name": STEP, "phase": ["Failed"]}}},
        "Failed",
    ],
)
def test_a_workflow_whose_nodes_cannot_be_read_proves_nothing(status: Any) -> None:
    cluster = Cluster(owner=WORKFLOW)
    found = {**workflow({}), "status": status}
    cluster.replies[WORKFLOW] = (200, found)
    watcher = cluster.watcher()
    assert [watcher.check() for _ in range(3)] == [False] * 3
    assert cluster.writes == []
    found["status"] = workflow({STEP: ("Pod", "Failed")})["status"]
    found["metadata"]["resourceVersion"] = "2"
    watcher.check()
    watcher.check()
    assert len(cluster.writes) == 1, "the watcher continues"


def test_the_watcher_prints_the_message_of_a_server_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message may contain control sequences, and characters that the locale of the image lacks."""
    cluster = Cluster()
    cluster.replies[RUN] = (500, {"message": "\x1b[2J\u202e\ud800"})
    watcher = cluster.watcher()
    with io.TextIOWrapper(io.BytesIO(), encoding="latin-1") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert watcher.check() is False
        out.seek(0)
        assert r"HTTP 500 \x1b[2J\u202e\ud800" in out.read()


@pytest.mark.parametrize("reply", [(503, {}), (404, "404 page not found"), ConnectionResetError("reset")])
def test_the_watcher_continues_if_the_run_cannot_be_read(reply: Any) -> None:
    cluster = Cluster()
    cluster.replies[RUN] = reply
    assert cluster.watcher().check() is False


def test_a_failed_request_to_stop_is_repeated() -> None:
    class Refusing(Cluster):
        refusals = 2

        def request(self, method: str, path: str, body: Any = None, accept: str = "") -> Any:
            if method == "PATCH" and self.refusals:
                self.refusals -= 1
                return 500, {"message": "etcdserver: request timed out"}
            return super().request(method, path, body, accept)

    cluster = Refusing()
    cluster.replies[POD] = absent(POD)
    watcher = cluster.watcher()
    for _ in range(6):
        watcher.check()
    assert len(cluster.writes) == 1


def test_another_pod_of_the_same_name_is_not_the_owner() -> None:
    cluster = Cluster()
    cluster.replies[POD] = (200, {"metadata": {"uid": "new"}, "status": {"phase": "Running"}})
    watcher = cluster.watcher()
    watcher.check()
    watcher.check()
    assert len(cluster.writes) == 1


@pytest.mark.parametrize(
    ("run", "how"),
    [
        ({}, "delete"),
        ({"metadata": {"uid": "r", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "suspend"),
        ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, "suspend"),
    ],
)
def test_a_run_that_does_not_stay_suspended_is_deleted(run: dict[str, Any], how: str) -> None:
    cluster = Cluster(**run)
    cluster.replies[POD] = absent(POD)
    watcher = cluster.watcher(how)
    watcher.check()
    watcher.check()
    body = {"preconditions": {"uid": "r", "resourceVersion": "7"}, "propagationPolicy": "Foreground"}
    assert cluster.writes == [("DELETE", RUN, body)]


def test_a_stateful_set_is_scaled_to_0() -> None:
    cluster = Cluster(kind="StatefulSet", apiVersion="apps/v1")
    cluster.replies[POD] = absent(POD)
    watcher = cluster.watcher()
    watcher.check()
    watcher.check()
    assert cluster.writes[0][2]["spec"] == {"replicas": 0}


def test_a_run_that_a_user_resumes_without_its_owner_is_not_suspended_again() -> None:
    cluster = Cluster()
    cluster.replies[POD] = absent(POD)
    watcher = cluster.watcher()
    watcher.check()
    watcher.check()
    cluster.run["spec"]["suspend"] = False
    for _ in range(4):
        watcher.check()
    assert len(cluster.writes) == 1


def test_a_run_that_a_retried_step_resumes_is_watched_again() -> None:
    cluster = Cluster(owner=WORKFLOW)
    watcher = cluster.watcher()

    def see(version: str, phase: str) -> None:
        found = workflow({STEP: ("Pod", phase)})
        found["metadata"]["resourceVersion"] = version
        cluster.replies[WORKFLOW] = (200, found)
        watcher.check()
        watcher.check()

    see("1", "Failed")
    assert len(cluster.writes) == 1
    see("2", "Running")
    cluster.run["spec"]["suspend"] = False
    see("3", "Running")
    assert len(cluster.writes) == 1
    see("4", "Failed")
    assert len(cluster.writes) == 2


@pytest.mark.parametrize(
    "run",
    [
        {"status": {"conditions": [{"type": "Completed", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        {"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        {"status": {"state": {"phase": "Aborted"}}},
        {"kind": "StatefulSet", "metadata": {"uid": "r", "annotations": {"stepset.dev/verdict": "{}"}}},
        {"metadata": {"uid": "another"}},
    ],
)
def test_the_watcher_ends_when_the_run_has_ended_or_another_run_has_its_name(run: dict[str, Any]) -> None:
    assert Cluster(**run).watcher().check() is True


def test_the_watcher_ends_when_the_run_does_not_exist() -> None:
    cluster = Cluster()
    cluster.replies[RUN] = absent(RUN)
    assert cluster.watcher().check() is True


def test_the_program_needs_only_the_standard_library_of_python_3_8() -> None:
    text = Path(watch_owner.__file__).read_text("utf-8")
    ast.parse(text, feature_version=(3, 8))
    words = [sys.executable, "-I", "-S", "-c", text, "{}"]
    done = subprocess.run(words, env={}, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "KeyError: 'KUBERNETES_SERVICE_HOST'"
