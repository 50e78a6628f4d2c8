"""Half of a GPU, as a quantity."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "nvidia.com/gpu: 0.5 is not a whole number; devices cannot be divided; give a whole number"
ODD_JOB = OddJob(
    job={"framework": "torch", "resources_per_node": {"gpus": "0.5"}},
    expected="stepset refuses the quantity; before, local runs got one GPU.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, validateResourceQuantityValue",
    refused=everywhere(f"resources_per_node: {WORDS}"),
)


@pytest.mark.parametrize("framework", ["torch", "mpi", "xgboost", "jax", "plain"])
@pytest.mark.parametrize("procs", ["auto", "gpu", 1])
@pytest.mark.parametrize("gpus", ["0.5", 0.5])
def test_the_number_of_processes_is_not_blamed(framework: str, procs: str | int, gpus: str | float) -> None:
    with pytest.raises(BadInputError, match=rf"^resources_per_node: {WORDS}"):
        ODD_JOB.render("jobset", framework=framework, procs_per_node=procs, resources_per_node={"gpus": gpus})
