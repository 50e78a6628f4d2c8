"""An init container with the name of a sidecar, or of the training container."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "a container has this name, too; give it another name"
ODD_JOB = OddJob(
    job={
        "pod_template": {
            "initContainers": [{"name": "exporter", "image": "x:1"}],
            "containers": [{"name": "exporter", "image": "x:1"}],
        }
    },
    expected="The job is refused; otherwise the JobSet would be accepted, and its Jobs never created.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (validateInitContainers)",
    refused=everywhere(f"pod_template.initContainers.exporter: {WORDS}"),
)


def test_the_name_of_the_training_container_is_taken() -> None:
    template = {"initContainers": [{"name": "node", "image": "x:1"}]}
    with pytest.raises(BadInputError, match=f"pod_template.initContainers.node: {WORDS}"):
        ODD_JOB.render("jobset", pod_template=template)


def test_a_missing_name_is_the_only_problem() -> None:
    with pytest.raises(BadInputError) as caught:
        ODD_JOB.render("jobset", pod_template={"initContainers": [{"image": "a"}], "containers": [{"image": "b"}]})
    assert len(caught.value.problems) == 2
    assert all("has no name; entries are merged by it" in problem for problem in caught.value.problems)
