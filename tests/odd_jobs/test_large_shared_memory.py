"""A shared memory that is larger than the pod's memory."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"resources_per_node": {"memory": "2Gi", "shm": "4Gi"}},
    expected="The job is refused: a rank that fills /dev/shm would be killed.",
    source="kubernetes.io/docs/concepts/storage/volumes (emptyDir, medium Memory)",
    refused=everywhere("resources_per_node.shm: 4Gi is more than the memory 2Gi, which includes /dev/shm; lower it"),
)
