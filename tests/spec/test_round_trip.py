"""A job is unchanged after it is written as a mapping, as YAML or as JSON, and read again."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings

from stepset.cli.output.formats import as_yaml
from stepset.spec import load_job, parse_job
from tests.strategies import JobFile, job_files


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(job_file=job_files())
@example(
    job_file={"script": "train.py", "annotations": {"a": "b\x85c\u2028"}}
)  # characters that only YAML treats as line ends
def test_a_job_is_written_and_read_without_loss(tmp_path: Path, job_file: JobFile) -> None:
    job = parse_job(job_file)
    short = job.to_dict()
    assert parse_job(short) == job
    assert parse_job(short).to_dict() == short  # the short form is already the shortest

    path = tmp_path / "job"
    path.write_text(as_yaml(short), encoding="utf-8")
    assert load_job(path) == job
    path.write_text(json.dumps(short), encoding="utf-8")
    assert load_job(path) == job


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(job_files())
def test_defaults_are_not_written(job_file: JobFile) -> None:
    short = parse_job(job_file).to_dict()
    assert None not in short.values()
    assert not [field for field, value in short.items() if value in ({}, []) or field not in {*job_file, "name"}]
