"""Golden manifests keep every key in the generated models of Kubeflow's API.

The models (kubeflow-trainer-api) are made from the OpenAPI schemas of Kubernetes, JobSet and Trainer; they drop
unknown keys, so that a misspelt or misplaced key is missing afterwards.
"""

from __future__ import annotations

from typing import Any

import pytest

models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api is not installed")

from tests.targets.golden import pairs, render_example  # noqa: E402  # after the check

MODEL_OF = {
    "JobSet": "JobsetV1alpha2JobSet",
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
}
POD = "IoK8sApiCoreV1PodTemplateSpec"
JOB = "IoK8sApiBatchV1JobSpec"


def _lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Yields the paths of values in `given` that are missing from `kept` or differ."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [path]
        return [lost for key in given for lost in _lost(given[key], kept.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [path]
        return [lost for n, (a, b) in enumerate(zip(given, kept, strict=True)) for lost in _lost(a, b, f"{path}[{n}]")]
    return [] if given == kept else [f"{path}: {given!r} became {kept!r}"]


def _through(model: str, given: dict[str, Any]) -> list[str]:
    return _lost(given, getattr(models, model).from_dict(given).to_dict())


KNOWN = [pair for pair in pairs() if pair[1] in ("jobset", "trainjob")]
BY_PARTS = [pair for pair in pairs() if pair[1] not in ("jobset", "trainjob")]


@pytest.mark.parametrize(("name", "target"), KNOWN, ids=lambda v: v)
def test_objects_of_kubeflow_and_jobset_lose_no_key(name: str, target: str) -> None:
    known = [each for each in render_example(name, target) if each["kind"] in MODEL_OF]
    assert known
    for each in known:
        assert _through(MODEL_OF[each["kind"]], each) == []


@pytest.mark.parametrize(("name", "target"), BY_PARTS, ids=lambda v: v)
def test_pods_of_other_targets_lose_no_key(name: str, target: str) -> None:
    spec = render_example(name, target)[-1]["spec"]
    for template in [task["template"] for task in spec["tasks"]] if "tasks" in spec else [spec["template"]]:
        assert _through(POD, template) == []
    if target == "job":
        assert _through(JOB, spec) == []


def test_a_misspelt_key_would_be_found() -> None:
    pod = {"spec": {"containers": [{"name": "node", "imagePullPolcy": "Always"}]}}
    assert _through(POD, pod) == [".spec.containers[0].imagePullPolcy: 'Always' became None"]
