"""A memory size without a unit, which Kubernetes reads as bytes."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"resources_per_node": {"cpu": 1, "memory": 16}},
    expected="The job is refused with sizes that have a unit.",
    source="kubernetes.io/docs/concepts/configuration/manage-resources-containers (meaning of memory)",
    refused=everywhere("resources_per_node.memory: 16 is 16 bytes; write 16Gi or 16Mi"),
)
