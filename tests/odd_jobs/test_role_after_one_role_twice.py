"""A role that waits for one role twice. The API server rejects two equal dependencies, so stepset renders one."""

from __future__ import annotations

from tests.odd_jobs import OddJob
from tests.targets.making import replicated_job

ODD_JOB = OddJob(
    job={
        "roles": [
            {"name": "prepare", "before": True, "command": ["true"]},
            {"name": "index", "before": True, "after": ["prepare", "prepare"], "command": ["true"]},
        ]
    },
    expected="The role waits once. The targets that support roles in an order render one dependency.",
    source="jobset v0.12.0 api/jobset/v1alpha2/jobset_types.go (DependsOn: listType map, listMapKey name)",
    refused={
        "statefulset": "roles.prepare: target statefulset cannot start and stop pods of several kinds together",
        "job": "roles.prepare: target job cannot start and stop pods of several kinds together",
        "volcano": "before: Volcano starts the nodes once the role runs",
    },
)


def test_the_role_waits_once() -> None:
    row = replicated_job(ODD_JOB.render("jobset"), "index")
    assert row["dependsOn"] == [{"name": "prepare", "status": "Complete"}]
