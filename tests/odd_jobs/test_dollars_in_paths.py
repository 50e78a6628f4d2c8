"""A script and a checkpoint_dir whose paths contain what Kubernetes replaces in commands and variables."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "contains '$(' or '$$', which Kubernetes replaces in commands and variables; use another path"
ODD_JOB = OddJob(
    job={"script": "train$$1.py"},
    expected="The job is refused; otherwise Python would search for the file train$1.py.",
    source="kubernetes v1.36 third_party/forked/golang/expansion/expand.go",
    refused=everywhere(f"script: 'train$$1.py' {WORDS}"),
)


def test_a_local_run_and_pods_would_use_different_directories() -> None:
    with pytest.raises(BadInputError) as caught:
        ODD_JOB.render("jobset", script="train.py", checkpoint_dir="/ckpt/$(STEPSET_RUN)")
    assert f"checkpoint_dir: '/ckpt/$(STEPSET_RUN)' {WORDS}" in str(caught.value)


@pytest.mark.parametrize("entry", ["script", "module"])
@pytest.mark.parametrize("name", ["a$(B)", "$(B)/train", "a$$b", "$(STEPSET_RUN)"])
def test_references_are_refused_in_each_name_of_a_program(entry: str, name: str) -> None:
    with pytest.raises(BadInputError) as caught:
        ODD_JOB.render("jobset", **{"script": None, entry: name})
    assert f"{entry}: {name!r} {WORDS}" in str(caught.value)


def test_a_single_dollar_is_not_replaced() -> None:
    assert ODD_JOB.render("jobset", script="train$1.py")
