"""A download that must complete before training starts: a JobSet can express it, a single Job cannot."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob

SINGLE = "roles.prepare: target {} cannot start and stop pods of several kinds together"
ODD_JOB = OddJob(
    job={"num_nodes": 2, "roles": [{"name": "prepare", "before": True, "command": ["true"]}]},
    expected="The nodes start when the role has completed; targets without an order of pods refuse the job.",
    source="jobset v0.12.0 api/jobset/v1alpha2/jobset_types.go (DependsOn); docs/targets.md",
    refused={
        "statefulset": SINGLE.format("statefulset"),
        "job": SINGLE.format("job"),
        "volcano": "roles.prepare.before: Volcano starts the nodes once the role runs, not once it is complete",
    },
)


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_the_nodes_depend_on_its_completion(target: str) -> None:
    objects = ODD_JOB.render(target)
    kinds = {each["kind"]: each for each in objects}
    spec = kinds["JobSet"]["spec"] if target == "jobset" else kinds["TrainingRuntime"]["spec"]["template"]["spec"]
    rows = {each["name"]: each for each in spec["replicatedJobs"]}
    assert rows["node"]["dependsOn"] == [{"name": "prepare", "status": "Complete"}]
    assert "dependsOn" not in rows["prepare"]
