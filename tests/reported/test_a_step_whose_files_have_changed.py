"""A run that exists does not need the files of its step again: the step ends as its run does.

Each test changes what the job of a step was read from, after the step has created its run and was killed. The next pod
of the step, which no longer can read the job, or would read another one, must follow the run.
"""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from stepset.targets.metadata import SUBMISSION
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.serving import serving
from tests.kubernetes.stored_objects import CREATED, StoredObjects
from tests.waiting import until

pytest.importorskip("kfp")
from kfp import dsl

from stepset_kfp.packing import script_archive
from stepset_kfp.step.train import train
from stepset_kfp.training.distributed_train import component
from tests.kfp.node_names import step_node

pytestmark = [
    pytest.mark.kfp,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kfp"),
    pytest.mark.filterwarnings("ignore::FutureWarning:kfp"),
]

CHANGES = ["script", "job", "code", "files", "parameter"]
ENDS = {"running": "Completed", "succeeded": "Completed", "failed": "Failed", "suspended": "Completed"}
"""The state of the run while no step follows it, and the condition with which its JobSet ends."""
PODS = {"restarted": step_node(), "retried": step_node(try_number=1)}
FINAL = ("succeeded", "failed")


class Cluster:
    """A server that stores objects and grants all permissions. A watch reports all objects of its collection at once.

    Attributes:
        objects: the stored objects.
        on_watch: called at each watch of JobSets.
        server: the server and its requests.
    """

    def __init__(self) -> None:
        self.objects = StoredObjects(lambda: self.server.bodies[-1][2])
        self.on_watch: Callable[[], None] = lambda: None
        self.server = ApiServer(self._answer, delay=lambda: 0.01)

    def _answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if query.get("watch"):
            if path.endswith("/jobsets"):
                self.on_watch()
            found = self.objects.answer("GET", path, {})[1]["items"]
            return 200, [{"type": "MODIFIED", "object": each} for each in found]
        if path.endswith("/selfsubjectaccessreviews"):
            return 201, {"status": {"allowed": True}}
        return self.objects.answer(method, path, query)

    @property
    def jobset(self) -> dict[str, Any]:
        (found,) = self.objects.of_kind("jobsets")
        return found

    def created(self) -> int:
        return sum(method == "POST" and path.endswith("/jobsets") for method, path, _ in self.server.requests)

    def end(self, condition: str) -> None:
        """Ends the JobSet as its controller does."""
        ended = {"type": condition, "status": "True", "lastTransitionTime": CREATED, "message": "the data is damaged"}
        self.jobset["status"] = {"conditions": [ended]}


@dataclass(frozen=True)
class Step:
    """A step in a pod of a pipeline.

    Args:
        directory: contains the files of the job, and the outputs.
        inputs: the inputs of the component that are not defaults.
    """

    directory: Path
    inputs: dict[str, Any]

    def given(self) -> dict[str, Any]:
        parameters = signature(component.distributed_train.python_func).parameters
        given = {name: None if each.default is each.empty else each.default for name, each in parameters.items()}
        artifacts = {"model": dsl.Model, "metrics": dsl.Metrics, "report": dsl.HTML}
        given |= {name: kind(name=name, uri=str(self.directory / name)) for name, kind in artifacts.items()}
        given |= {name: str(self.directory / name) for name in ("result", "run")}
        common = {"framework": "plain", "image": "i:1", "namespace": "ns", "backend": "kubernetes"}
        return given | common | {"checkpoint_dir": "/data/c", "startup_timeout": 0} | self.inputs

    def pod(self, cluster: Cluster, node: str) -> None:
        """Creates the pod of the step, as Argo does."""
        workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits-x7k2p", "uid": "w"}
        cluster.objects.by_path["/api/v1/namespaces/ns/pods/step"] = {
            "metadata": {
                "name": "step",
                "namespace": "ns",
                "uid": "p",
                "labels": {"pipeline/runid": "8d0f3f0e"},
                "annotations": {"workflows.argoproj.io/node-name": node},
                "ownerReferences": [workflow],
            },
            "spec": {"containers": [{"name": "main", "image": "i:1"}]},
        }


def inputs_for(change: str, directory: Path) -> dict[str, Any]:
    """Returns the inputs of a step that reads its job from what `change` changes."""
    (directory / "train.py").write_text("print('trained')\n")
    if change == "code":
        (directory / "src").mkdir()
        (directory / "train.py").rename(directory / "src" / "train.py")
        return {"script": "train.py", "code": "src"}
    if change == "files":
        packed = script_archive("train.py", (directory / "train.py").read_bytes())
        path = directory / f"{hashlib.sha256(packed).hexdigest()}.tar.gz"
        path.write_bytes(packed)
        return {"script": "train.py", "files": dsl.Artifact(name="files", uri=str(path))}
    if change == "job":
        return {"job": {"name": "digits", "script": "train.py", "num_nodes": 2}}
    return {"script": "train.py", "name": "digits", "num_nodes": 2}


def changed(change: str, step: Step) -> Step:
    """Changes the files of a step, or the values of its parameters."""
    inputs = dict(step.inputs)
    if change == "script":
        (step.directory / "train.py").unlink()
    elif change == "code":
        (step.directory / "src").rename(step.directory / "moved")
    elif change == "files":
        Path(step.inputs["files"].path).unlink()
    elif change == "job":
        inputs["job"] = {"name": "Digits!", "num_nodes": "["}
    else:
        inputs |= {"name": "other", "num_nodes": 3, "target": "none", "log_ranks": "x", "startup_timeout": -1}
    return Step(step.directory, inputs)


@pytest.fixture(scope="module", params=CHANGES)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A changed step whose pod was killed after it had created the run; the objects of the server."""
    directory, cluster = tmp_path_factory.mktemp("step"), Cluster()
    with pytest.MonkeyPatch.context() as patch, serving(cluster.server) as port:
        patch.chdir(directory)
        for name, value in {"KFP_POD_NAME": "step", "KUBERNETES_SERVICE_HOST": "set"}.items():
            patch.setenv(name, value)
        patch.setenv("KUBECONFIG", kubeconfig(directory, port, namespace="ns"))
        step = Step(directory, inputs_for(request.param, directory))
        step.pod(cluster, step_node())
        process = multiprocessing.get_context("spawn").Process(target=train, args=(step.given(),))
        process.start()
        try:
            assert until(lambda: complete(cluster), 60)
        finally:
            process.kill()
            process.join()
        yield changed(request.param, step), cluster.objects.by_path


def complete(cluster: Cluster) -> bool:
    found = cluster.objects.of_kind("jobsets")
    return bool(found) and SUBMISSION not in found[0]["metadata"]["labels"]


@pytest.mark.parametrize("pod", PODS)
@pytest.mark.parametrize("state", ENDS)
def test_the_next_pod_of_a_killed_step_ends_as_the_run(
    killed: Any, state: str, pod: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    step, objects = killed
    cluster, end = Cluster(), ENDS[state]
    cluster.objects.by_path = copy.deepcopy(objects)
    step.pod(cluster, PODS[pod])
    if state in FINAL:
        cluster.end(end)
    else:
        cluster.on_watch = lambda: cluster.end(end)
    cluster.jobset["spec"]["suspend"] = state == "suspended"
    with serving(cluster.server) as port:
        monkeypatch.setenv("KUBECONFIG", kubeconfig(step.directory, port, namespace="ns"))
        code = exit_code_of(step)
    printed = "".join(capfd.readouterr())
    assert code == (3 if end == "Failed" else 0), printed  # no failed pod exists, so the cause is unknown
    assert cluster.created() == 0
    assert cluster.jobset["spec"]["suspend"] is False
    assert (step.directory / "run").read_text() == cluster.jobset["metadata"]["name"]
    assert ("it is resumed" if state == "suspended" else "reattaching to it") in printed
    if end == "Failed":
        assert "the data is damaged" in printed
    else:
        assert "the location of checkpoint_dir, /data/c" in printed


def exit_code_of(step: Step) -> int:
    try:
        train(step.given())
    except SystemExit as ended:
        return int(str(ended.code))
    return 0


def test_the_next_try_after_a_reported_failure_reads_the_job_before_it_deletes_the_run(
    killed: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    step, objects = killed
    cluster = Cluster()
    cluster.objects.by_path = copy.deepcopy(objects)
    step.pod(cluster, step_node(try_number=1))
    cluster.end("Failed")
    with serving(cluster.server) as port:
        monkeypatch.setenv("KUBECONFIG", kubeconfig(step.directory, port, namespace="ns"))
        assert exit_code_of(step) == 3
        uid = cluster.jobset["metadata"]["uid"]
        assert exit_code_of(step) == 2
    assert cluster.jobset["metadata"]["uid"] == uid
    assert "it is recreated" not in "".join(capfd.readouterr())
