"""Four accelerators whose resource name stepset does not know, beside 16 CPUs."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob
from tests.targets.making import env, plan

ODD_JOB = OddJob(
    job={"framework": "torch", "resources_per_node": {"cpu": 16, "furiosa.ai/rngd": 4}},
    expected="Each node runs one process for each CPU, and a note states that furiosa.ai/rngd is not counted.",
    source="FuriosaAI device plugin: each card is one furiosa.ai/rngd",
)


@pytest.mark.parametrize("target", [target for target in ODD_JOB.targets if target != "trainjob"])
def test_the_accelerators_are_not_counted(target: str) -> None:
    assert env(ODD_JOB.render(target))["PET_NPROC_PER_NODE"] == "16"


def test_a_note_names_the_resource_unless_the_job_states_the_number() -> None:
    [note] = plan(**ODD_JOB.job).notes
    assert "not counted: furiosa.ai/rngd" in note
    assert plan(**ODD_JOB.job, procs_per_node=4).notes == ()


def test_processes_that_the_job_counts_by_gpus_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"procs_per_node: gpu, but it is unknown whether furiosa\.ai/rngd is"):
        ODD_JOB.render("jobset", procs_per_node="gpu")
