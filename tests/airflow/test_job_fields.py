"""The job that an operator's parameters define."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepset.defaults import JOB_FIELDS
from stepset.errors import BadInputError
from stepset.spec import TrainingJob
from stepset_airflow.run.job_fields import entry_problem, job_of


def test_the_fields_are_those_of_the_job_file_in_its_order() -> None:
    assert tuple(TrainingJob.model_fields) == JOB_FIELDS


def test_fields_that_are_not_given_keep_the_job_s_defaults(tmp_path: Path) -> None:
    fields = dict.fromkeys(JOB_FIELDS) | {"script": "train.py", "num_nodes": "2"}
    job, base = job_of(None, fields, None, tmp_path)
    assert job == TrainingJob.model_validate({"script": "train.py", "num_nodes": 2})
    assert base == tmp_path


def test_given_fields_replace_those_of_the_job(tmp_path: Path) -> None:
    job, _ = job_of({"script": "train.py", "num_nodes": 2, "args": ["a"]}, {"num_nodes": 3}, None, tmp_path)
    assert (job.num_nodes, job.args) == (3, ["a"])


def test_paths_in_a_job_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "digits.yaml").write_text("script: train.py\nnum_nodes: 2\n")
    job, base = job_of("jobs/digits.yaml", {"name": "mine"}, None, tmp_path)
    assert (job.name, job.num_nodes, base) == ("mine", 2, tmp_path / "jobs")


def test_queue_name_is_added_to_other_scheduling_fields(tmp_path: Path) -> None:
    fields = {"script": "train.py", "scheduling": {"priority_class": "high"}}
    job, _ = job_of(None, fields, "team-a", tmp_path)
    assert (job.scheduling.queue_name, job.scheduling.priority_class) == ("team-a", "high")


def test_an_invalid_value_is_reported_with_its_field(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="num_nodes: 'two' is not a whole number"):
        job_of(None, {"script": "train.py", "num_nodes": "two"}, None, tmp_path)


def test_a_missing_job_file_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.yaml: no such file"):
        job_of("nowhere.yaml", {}, None, tmp_path)


def problem(fields: dict[str, object], **given: bool) -> str | None:
    return entry_problem(fields, **{"has_job": False, "sets_function": False, "complete": True, **given})


def test_two_entry_points_are_a_problem_before_templates_are_rendered() -> None:
    found = problem({"script": "a.py", "module": "b"}, has_job=False)
    assert found == "give only one of script, module, command, function; script and module are given"


def test_a_missing_entry_point_is_a_problem_unless_another_argument_may_provide_it() -> None:
    fields: dict[str, object] = {"num_nodes": 2}
    assert str(problem(fields)).startswith("no program is given")
    for name, value in (("has_job", True), ("sets_function", True), ("complete", False)):
        assert problem(fields, **{name: value}) is None
    assert problem({"num_nodes": 2, "framework": {"kind": "torchtune", "model": "qwen2_5/1.5B"}}) is None


def test_a_decorated_function_is_the_only_program() -> None:
    assert problem({"module": "a"}, sets_function=True) == (
        "module: the decorated function is the program; leave module out"
    )


def test_queue_name_leaves_scheduling_that_is_not_a_mapping_to_the_model(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"scheduling: 'high' is not a mapping"):
        job_of(None, {"script": "train.py", "scheduling": "high"}, "team-a", tmp_path)
