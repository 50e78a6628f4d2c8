"""More variables and arguments than a TrainJob's lists may have."""

from __future__ import annotations

from tests.odd_jobs import OddJob
from tests.targets.making import workload

ODD_JOB = OddJob(
    job={"env": {f"V{n}": str(n) for n in range(200)}, "args": [str(n) for n in range(200)]},
    expected="The lists stay in the TrainingRuntime, and the API server accepts both objects.",
    source="kubeflow/trainer v2.3.0 pkg/apis/trainer/v1alpha1/trainjob_types.go (Trainer, MaxItems 128)",
)


def test_the_trainjob_has_no_long_list() -> None:
    assert workload(ODD_JOB.render("trainjob"))["spec"]["trainer"].keys().isdisjoint({"env", "args"})
