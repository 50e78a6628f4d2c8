"""The number of starts that a step's training gets in STEPSET_ATTEMPT."""

from pathlib import Path

import pytest

from stepset.backends.base import RunRequest
from stepset.sources import read_sources
from stepset.spec.load import parse_job
from stepset_kfp.step.starts import EARLIER_STARTS, RESUMES, Starts, starts_of, with_earlier_starts


def run(**annotations: str) -> dict[str, object]:
    return {"metadata": {"name": "run", "annotations": annotations}}


def test_restarts_resumptions_and_replaced_runs_are_counted() -> None:
    starts = starts_of(run(**{EARLIER_STARTS: "3", RESUMES: "2"}), restarts=1)
    assert starts == Starts(earlier=3, restarts=1, resumes=2)
    assert starts.total == 7, "the first start of the run counts, too"


@pytest.mark.parametrize("value", ["", "-4", "x", "9" * 40, "1.5"])
def test_annotations_that_are_not_valid_count_as_none(value: str) -> None:
    assert starts_of(run(**{EARLIER_STARTS: value, RESUMES: value}), restarts=0).total == 1
    assert starts_of({"metadata": {"annotations": None}}, restarts=0).total == 1


def test_a_run_that_replaces_another_one_remembers_the_starts_before_it() -> None:
    job = parse_job({"name": "job", "command": ["true"], "annotations": {"own": "kept"}})
    request = RunRequest(job, read_sources(job, Path()))
    replacing = with_earlier_starts(request, 4)
    assert replacing.attempt == 4
    assert replacing.job.annotations == {"own": "kept", EARLIER_STARTS: "4"}
    assert starts_of({"metadata": {"annotations": replacing.job.annotations}}, restarts=0).total == 5
    assert with_earlier_starts(request, 0) is request
