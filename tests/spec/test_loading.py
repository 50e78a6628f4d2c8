"""A job is read from YAML, JSON or a mapping; a TrainingJob is returned unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepset.errors import BadInputError
from stepset.spec import TrainingJob, load_job, parse_job

JOB = {"name": "digits", "framework": "torch", "num_nodes": 2, "script": "train.py", "args": ["--epochs", "3"]}


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def _error(path: Path, content: str | bytes) -> str:
    """Returns the one-line error of this content, without the file's name."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInputError) as caught:
        load_job(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_the_same_job_comes_from_yaml_json_and_a_mapping(tmp_path: Path) -> None:
    yaml_file, json_file = tmp_path / "job.yaml", tmp_path / "job.json"
    yaml_file.write_text(
        "name: digits\nframework: torch\nnum_nodes: 2\nscript: train.py\nargs: [--epochs, 3]\n", encoding="utf-8"
    )
    json_file.write_text(json.dumps(JOB), encoding="utf-8")
    loaded = parse_job(JOB)
    assert load_job(yaml_file) == load_job(str(json_file)) == load_job(JOB) == load_job(loaded) == loaded


def test_json_may_write_any_character_as_escapes(job_file: Path) -> None:
    job_file.write_text(json.dumps({**JOB, "annotations": {"mood": "\N{ROCKET}"}}), encoding="utf-8")
    assert "\\ud83d" in job_file.read_text(encoding="utf-8")  # YAML would reject this surrogate
    assert load_job(job_file).annotations == {"mood": "\N{ROCKET}"}
    assert _error(job_file, json.dumps({**JOB, "image": "\ud83d"})).startswith("image: '\\ud83d' is not Unicode text")


def test_a_job_cannot_be_changed() -> None:
    job = parse_job(JOB)
    with pytest.raises(ValueError, match="frozen"):
        job.num_nodes = 3  # type: ignore[misc]  # that is the point
    with pytest.raises(ValueError, match="frozen"):
        job.network.port = 1  # type: ignore[misc]  # that is the point


def test_anchors_and_merge_keys_work(job_file: Path) -> None:
    job_file.write_text(
        "script: train.py\n"
        "env: &shared {A: '1', B: '2'}\n"
        "roles:\n"
        "- {name: watch, image: watch, env: {<<: *shared, B: '3'}}\n"
        "- {name: train, image: train, env: *shared}\n",
        encoding="utf-8",
    )
    job = load_job(job_file).to_dict()
    assert job["roles"][0]["env"] == {"A": "1", "B": "3"}
    assert job["roles"][1]["env"] == job["env"] == {"A": "1", "B": "2"}


def test_a_merge_key_does_not_create_a_duplicate_key(job_file: Path) -> None:
    # The outer mapping is constructed first and merges the inner mapping, which then contains its base's key again.
    job_file.write_text(
        "script: t.py\n"
        "pod_template:\n"
        "  spec: {a: {b: {c: &inner {<<: &base {k: 1}, k: 2}}}}\n"
        "  metadata: {<<: *inner}\n",
        encoding="utf-8",
    )
    template = load_job(job_file).pod_template
    assert template["metadata"] == template["spec"]["a"]["b"]["c"] == {"k": 2}


@pytest.mark.parametrize(
    ("content", "line", "column", "key"),
    [
        ("script: a.py\nscript: b.py\n", 2, 1, "script"),
        ("script: a.py\nenv: {A: 1, A: 2}\n", 2, 13, "A"),
        ("script: a.py\nroles:\n- name: a\n  image: x\n  name: b\n", 5, 3, "name"),
        ('{"script": "a.py", "script": "b.py"}', 1, 20, "script"),
        ("script: a.py\npod_template:\n  spec:\n    x: {y: 1, z: 1, y: 2}\n", 4, 21, "y"),
    ],
)
def test_a_duplicate_key_is_an_error_at_its_second_position(
    job_file: Path, content: str, line: int, column: int, key: str
) -> None:
    assert _error(job_file, content) == (
        f"line {line}, column {column}: not readable as YAML: the key {key!r} is given twice"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; a job file is a mapping of fields such as 'script: train.py'"),
        ("# nothing\n", "is empty; a job file is a mapping of fields such as 'script: train.py'"),
        ("- script: a.py\n", "is a list; a job file is a mapping of fields such as 'script: train.py'"),
        ("train.py", "is a str; a job file is a mapping of fields such as 'script: train.py'"),
        ("1: 2\nscript: a.py\n", 'the key 1 is not text; write "1"'),
        ("on: 2\nscript: a.py\n", 'the key on is read as true; write "on"'),
        ("script: [a\n", "line 2, column 1: not readable as YAML: while parsing a flow sequence, did not find"),
        ("script: a\n\tnum_nodes: 2\n", "indent with spaces, not tabs"),
        ("script: a\nnum_nodes:2\n", "line 3, column 1: not readable as YAML: while scanning a simple key"),
        *(
            (content, f"; write a space after the colon in line {line}")
            for content, line in (
                ("script: a\nnum_nodes:2\n", 2),
                ("num_nodes:2\nscript: a\n", 1),
                ("script: a\nrestart:\n  max_restarts:2\n  user_errors: fail\n", 3),
            )
        ),
        ("script: a\n  num_nodes: 2\n", "line 2, column 12: not readable as YAML: mapping values are not allowed"),
        *(
            (content, "; indent the fields of one mapping equally, and quote a value that contains ': '")
            for content in ("script: a\n  num_nodes: 2\n", "script: a\nargs: [x]\nname: a: b\n")
        ),
        ("script: a.py\n---\nscript: b.py\n", "line 2, column 1: not readable as YAML: expected a single document"),
        ("pod_template: &a {spec: *a}\n", "line 1, column 15: not readable as YAML: an alias contains itself"),
        ("pod_template: {spec: &a [x, *a]}\n", "line 1, column 22: not readable as YAML: an alias contains itself"),
        ("script: !!python/object/apply:os.system [true]\n", "could not determine a constructor for the tag"),
        ("script: 'a\x00b'\n", "not readable as YAML: unacceptable character #x0000"),
        (b"\xff\xfe\x00", "cannot be read: it is not UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n", "cannot be read: it is not UTF-8 text"),
    ],
)
def test_an_invalid_job_file_is_reported_in_one_line(job_file: Path, content: str | bytes, message: str) -> None:
    assert message in _error(job_file, content)


def test_a_missing_file_and_a_directory_have_different_messages(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"missing\.yaml: no such file; check the path$"):
        load_job(tmp_path / "missing.yaml")
    with pytest.raises(BadInputError, match=r"cannot be read: Is a directory$"):
        load_job(tmp_path)


def test_every_problem_is_one_line_with_the_files_name(job_file: Path) -> None:
    job_file.write_text(
        "script: a.py\nnum_nodes: 0\nagent: maybe\nnetwork: {port: 0, subdomain: A}\n", encoding="utf-8"
    )
    with pytest.raises(BadInputError) as caught:
        load_job(job_file)
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "num_nodes",
        "network.port",
        "network.subdomain",
        "agent",
    ]
    assert all(line.startswith(f"{job_file}: ") for line in str(caught.value).splitlines())


def test_the_error_has_a_prefix_only_if_where_is_given() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "a.py", "num_nodes": 0})
    assert str(caught.value) == "num_nodes: 0 is too small; give 1 or more"
    assert str(caught.value.at("job.yaml")) == "job.yaml: num_nodes: 0 is too small; give 1 or more"
    assert caught.value.exit_code == 2


def test_a_job_made_in_python_is_checked_the_same_way() -> None:
    assert TrainingJob(framework="torch", num_nodes=2, script="train.py") == parse_job(  # type: ignore[call-arg]  # name is derived
        {"framework": "torch", "num_nodes": 2, "script": "train.py"}
    )
    with pytest.raises(ValueError, match="unknown key 'num_node'; did you mean 'num_nodes'"):
        TrainingJob(script="train.py", num_node=2)  # type: ignore[call-arg]  # that is the point
