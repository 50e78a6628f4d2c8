"""A shared memory that is larger than the pod's memory."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"resources_per_node": {"memory": "2Gi", "shm": "4Gi"}},
    expected="The job is refused: a rank that fills /dev/shm would be killed.",
    source="kubernetes.io/docs/concepts/storage/volumes (emptyDir, medium Memory)",
    refused=everywhere("resources_per_node.shm: 4Gi is more than the memory 2Gi, which includes /dev/shm; lower it"),
)


def test_the_message_names_a_field_that_exists_if_the_pod_template_sets_the_memory() -> None:
    template = {"containers": [{"name": "node", "resources": {"limits": {"memory": "2Gi"}}}]}
    with pytest.raises(BadInputError, match=r"^resources_per_node\.shm: 4Gi is more than the memory 2Gi"):
        ODD_JOB.render("jobset", resources_per_node={"shm": "4Gi"}, pod_template=template)
