"""A job some of whose fields have no value yet, because a caller knows them only when the job runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stepset.errors import BadInputError
from stepset.spec import TrainingJob
from stepset.spec.load import _UNKNOWN, check_known_fields
from tests.strategies import JobFile, job_files

FIELDS = tuple(TrainingJob.model_fields)


def problems(data: dict[str, Any], *unknown: str) -> str:
    with pytest.raises(BadInputError) as raised:
        check_known_fields(data, unknown, "here")
    return str(raised.value)


@given(job_files(), st.sets(st.sampled_from(FIELDS)))
def test_no_part_of_a_valid_job_is_invalid(job: JobFile, unknown: set[str]) -> None:
    check_known_fields(job, unknown)
    check_known_fields({key: value for key, value in job.items() if key not in unknown}, unknown)


@pytest.mark.parametrize("field", FIELDS)
def test_no_field_accepts_the_placeholder_of_an_unknown_value(field: str) -> None:
    # Otherwise the model would compare the placeholder with the values of other fields.
    with pytest.raises(ValidationError) as raised:
        TrainingJob.model_validate({"script": "train.py", field: _UNKNOWN})
    assert {detail["loc"][0] for detail in raised.value.errors()} == {field}


def test_a_known_field_is_checked_beside_an_unknown_one() -> None:
    found = problems({"script": "train.py", "num_nodes": "two", "args": None}, "args")
    assert found == "here: num_nodes: 'two' is not a whole number; give one such as 2"


def test_the_value_of_an_unknown_field_is_ignored() -> None:
    check_known_fields({"script": "train.py", "num_nodes": "{{ n }}"}, {"num_nodes"})
    check_known_fields({"script": "train.py", "args": ["\0"]}, {"args"})


def test_an_unknown_key_is_an_error_whatever_values_are_unknown() -> None:
    assert "did you mean 'num_nodes'?" in problems({"script": "train.py", "num_node": 2}, "args")


def test_fields_are_compared_only_if_all_are_known() -> None:
    job = {
        "framework": {"kind": "torch", "elastic": {"min_nodes": 4, "max_nodes": 8}},
        "num_nodes": 2,
        "script": "a.py",
    }
    assert "is outside framework.elastic's 4 to 8 nodes" in problems(job)
    check_known_fields(job, {"num_nodes"})
    check_known_fields(job, {"args"})


def test_unusable_texts_and_deep_nesting_are_errors_of_one_line() -> None:
    assert problems({"script": "a\0b"}, "args") == r"here: script: 'a\x00b' contains a NUL character; remove it"
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert problems({"script": "a.py", "pod_template": {"a": deep}}, "args") == (
        "here: has too many levels; nest values less deeply"
    )
