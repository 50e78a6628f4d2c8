"""An elastic world with fewer nodes than pods: the success of pod 0 decides, which ends after the others."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4}},
        "num_nodes": 4,
        "procs_per_node": 1,
    },
    expected="The run succeeds only if every node of the last rendezvous round has ended with 0.",
    source="torch 2.15 torch/distributed/elastic/agent/server/api.py (_exit_barrier); docs/design/agent.md",
    refused={"volcano": "framework.elastic: a Volcano Job restarts all its pods, not one"},
)


@pytest.mark.parametrize("target", ["jobset", "job"])
def test_pod_0_decides(target: str) -> None:
    spec = ODD_JOB.render(target)[-1]["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if target == "jobset" else spec
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
