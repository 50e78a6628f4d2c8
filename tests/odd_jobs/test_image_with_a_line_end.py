"""An image whose name ends with a line end, as `--set image="..."` gets it from a file."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "begins or ends with white space, which Kubernetes refuses; remove it"
ODD_JOB = OddJob(
    job={"image": "registry.example/train:1\n"},
    expected="The job is refused; otherwise the JobSet would be accepted, and its pods never created.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (validateContainersOnlyForPod)",
    refused=everywhere(f"image: 'registry.example/train:1\\n' {WORDS}"),
)


def test_the_image_of_a_role_is_checked_too() -> None:
    with pytest.raises(BadInputError, match=f"roles.board.image: ' x:1' {WORDS}"):
        ODD_JOB.render("jobset", image="x:1", roles=[{"name": "board", "image": " x:1"}])
