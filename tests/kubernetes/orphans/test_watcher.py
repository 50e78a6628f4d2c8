"""The Job of a watcher."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.backends.kubernetes.orphans.watcher import program_text, watcher
from stepset.backends.kubernetes.submit.watchers import image_and_placement
from stepset.backends.orphan_policy import OrphanStop, OwnerPod, WorkflowStep
from stepset.targets.request import TARGET_NAMES
from stepset.watch.cluster.ownership import is_run, run_of
from tests.targets.making import rendered
from tests.targets.pod_security import violations

POD = OrphanStop(OwnerPod("cli-7", "p-1"), "delete")


def made(target: str = "jobset", orphan: OrphanStop = POD, **job: Any) -> dict[str, Any]:
    objects = rendered(target, num_nodes=2, **job)
    workload = objects[-1]
    pods_of = next((each for each in objects if each["kind"] == "TrainingRuntime"), workload)
    about = {**workload["metadata"], "uid": "r-1", "namespace": "ml"}
    training = image_and_placement(pods_of, job.get("image", "digits:1"))
    return watcher({**workload, "metadata": about}, training, orphan)


def pod(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["spec"]["template"]["spec"])


def unescaped(text: str) -> str:
    """The word that Kubernetes passes to the program."""
    assert "$(" not in text.replace("$$", "")
    return text.replace("$$", "$")


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_workload_owns_the_watcher_which_is_no_part_of_the_run(target: str) -> None:
    job = made(target)
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["blockOwnerDeletion"], "controller" in owner) == ("r-1", False, False)
    assert not is_run(job)
    assert run_of(job) == run_of(job["spec"]["template"]) == ""


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_training_pods_get_no_credentials_and_the_watcher_has_an_account_of_its_own(target: str) -> None:
    job = made(target)
    assert pod(job)["serviceAccountName"] == "stepset-orphan"
    assert pod(job)["containers"][0]["image"]


def test_the_program_and_its_configuration_arrive_unchanged() -> None:
    step = WorkflowStep("digits", "w-1", "digits.root.it(0:$(HOME)).executor")
    (container,) = pod(made(orphan=OrphanStop(step, "suspend", {"image": "step:1"})))["containers"]
    assert unescaped(container["command"][-1]) == program_text()
    config = json.loads(unescaped(container["args"][0]))
    assert config["how"] == "suspend"
    assert config["run"]["uid"] == "r-1"
    path = "/apis/argoproj.io/v1alpha1/namespaces/ml/workflows/digits"
    assert config["owner"] == {"path": path, "uid": "w-1", "node": step.node}


def test_it_runs_in_the_image_and_the_place_of_the_step() -> None:
    place = {"image": "step:1", "nodeSelector": {"pool": "cpu"}, "imagePullSecrets": [{"name": "registry"}]}
    spec = pod(made(orphan=OrphanStop(WorkflowStep("w", "u", "n"), "suspend", place)))
    assert spec["containers"][0]["image"] == "step:1"
    assert (spec["nodeSelector"], spec["imagePullSecrets"]) == ({"pool": "cpu"}, [{"name": "registry"}])
    assert "affinity" not in spec


def test_it_runs_in_the_training_image_where_the_training_pods_may_run() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    spec = pod(made(image="train:2", scheduling={"node_selector": {"pool": "gpu"}, "tolerations": [toleration]}))
    assert spec["containers"][0]["image"] == "train:2"
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "gpu"}, [toleration])
    assert "podAffinity" in spec["affinity"]


def test_the_pod_security_level_restricted_admits_it() -> None:
    assert violations(made()["spec"]["template"]) == []
