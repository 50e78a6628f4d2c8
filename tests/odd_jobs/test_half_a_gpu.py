"""Half of a GPU, as a quantity."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"framework": "torch", "resources_per_node": {"gpus": "0.5"}},
    expected="stepset refuses the quantity; before, local runs got one GPU.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, validateResourceQuantityValue",
    refused=everywhere("devices cannot be divided; give a whole number"),
)


def test_the_number_of_processes_does_not_change_that() -> None:
    with pytest.raises(BadInputError, match="devices cannot be divided; give a whole number"):
        ODD_JOB.render("jobset", procs_per_node=1)
