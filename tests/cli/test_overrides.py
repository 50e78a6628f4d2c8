"""Flags and `--set` override fields of a job file with the same names; other fields are unchanged."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset.cli.arguments.job_args import JobArgs
from stepset.cli.arguments.overrides import parse_env, parse_setting, with_field
from stepset.errors import BadInputError
from stepset.spec import TrainingJob
from tests.cli.conftest import Cli

FILE = """
name: digits
framework: {kind: torch, launcher: none}
num_nodes: 4
procs_per_node: 8
script: train.py
args: ["--lr", "0.1"]
env: {A: from the file, B: kept}
restart: {max_restarts: 1, user_errors: fail}
storage: [{path: /data, claim: one}]
deadline: 1h
"""


@pytest.fixture
def validated(cli: Cli, tmp_path: Path) -> Any:
    """Returns the job of a command line: FILE with flags, or the given job file."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job.yaml").write_text(FILE)

    def call(*argv: str) -> dict[str, Any]:
        result = cli("validate", "-o", "yaml", *argv)
        assert (result.code, result.err) == (0, "")
        job: dict[str, Any] = yaml.safe_load(result.out)
        return job

    return call


def test_flags_for_fields_have_the_names_of_the_fields() -> None:
    in_others = {"max_restarts", "gpus", "cpus", "memory", "queue_name"}  # of restart, resources_per_node, scheduling
    others = {"target", "settings", "program", *in_others}
    flags = {field.name for field in fields(JobArgs)} - others
    assert flags <= set(TrainingJob.model_fields)


def test_without_flags_the_job_equals_the_file(validated: Any) -> None:
    assert validated("job.yaml") == yaml.safe_load(FILE)


@pytest.mark.parametrize("flag", ["--queue", "--queue-name"])
def test_the_queue_has_a_flag(validated: Any, flag: str) -> None:
    assert validated("job.yaml", flag, "team-a")["scheduling"]["queue_name"] == "team-a"


@pytest.mark.parametrize(
    ("given", "words", "expected"),
    [
        ({}, ["off"], "off"),
        ({"first": "1h"}, ["after=60s"], {"after": "1m", "first": "1h"}),
        ("off", ["after=60s, first=10m"], {"after": "1m", "first": "10m"}),
        ({"first": "1h"}, ["action=fail"], {"first": "1h", "action": "fail"}),
    ],
)
def test_the_times_of_a_hang_have_a_flag(
    validated: Any, tmp_path: Path, given: Any, words: list[str], expected: Any
) -> None:
    content = {**yaml.safe_load(FILE), "hang": given}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert validated("job.yaml", "--hang", *words)["hang"] == expected


def test_flags_override_the_fields_of_the_file(validated: Any, tmp_path: Path) -> None:
    job = validated(
        "job.yaml", "--nodes", "2", "--procs-per-node", "cpu", "--name", "other", "--image", "i:1", "--env", "A=x=y",
        "-e", "C=", "--checkpoint-dir", "ckpt", "--max-restarts", "5", "--deadline", "90s", "--", "--epochs", "3",
    )  # fmt: skip
    assert job == yaml.safe_load(FILE) | {
        "name": "other",
        "num_nodes": 2,
        "procs_per_node": "cpu",
        "image": "i:1",
        "env": {"A": "x=y", "B": "kept", "C": ""},
        "checkpoint_dir": str(tmp_path / "ckpt"),
        "restart": {"max_restarts": 5, "user_errors": "fail"},
        "deadline": "1m30s",
        "args": ["--epochs", "3"],
    }


def test_num_nodes_is_nodes(validated: Any) -> None:
    assert validated("job.yaml", "--num-nodes", "3") == validated("job.yaml", "--nodes", "3")


def test_another_framework_removes_the_options_of_the_files_framework(validated: Any) -> None:
    assert validated("job.yaml", "--framework", "jax", "-p", "1")["framework"] == "jax"
    assert validated("job.yaml", "--framework", "torch")["framework"] == {"kind": "torch", "launcher": "none"}


def test_empty_arguments_after_the_dashes_replace_the_files(validated: Any) -> None:
    assert "args" not in validated("job.yaml", "--")


def test_a_note_states_which_arguments_of_the_file_are_replaced(cli: Cli, validated: Any) -> None:
    note = "note: args: the arguments after -- replace those of the job file: --lr 0.1\n"
    assert cli("validate", "job.yaml", "--", "--x").out.endswith(note)
    for same in (("--", "--lr", "0.1"), ()):
        assert "replace those" not in cli("validate", "job.yaml", *same).out


def test_a_script_with_flags_is_a_job(validated: Any) -> None:
    assert validated("train.py", "-n", "2", "-p", "2", "--", "-x", "--", "y") == {
        "name": "train",
        "framework": "torch",
        "num_nodes": 2,
        "procs_per_node": 2,
        "script": "train.py",
        "args": ["-x", "--", "y"],
    }


def test_a_module_and_a_command_are_jobs_too(validated: Any) -> None:
    assert validated("-m", "a.b", "--", "--x") == {"name": "b", "framework": "torch", "module": "a.b", "args": ["--x"]}
    assert validated("--framework", "mpi", "--command", "--", "./solver", "-n", "1") == {
        "name": "solver",
        "framework": "mpi",
        "command": ["./solver", "-n", "1"],
    }


def test_code_and_script_are_relative_to_the_current_directory(
    validated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "jobs"
    inside.mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("")
    assert validated("src/main.py", "--code", "src")["code"] == "src"
    absolute = validated(str(tmp_path / "src" / "main.py"), "--code", "src")
    assert (absolute["code"], absolute["script"]) == ("src", "src/main.py")
    (inside / "job.yaml").write_text("script: main.py")
    assert validated("jobs/job.yaml", "--code", "src")["code"] == "../src"


SETTINGS = [
    ("network.port=29501", ("network", {"port": 29501})),
    ("restart.max_restarts=0", ("restart", {"user_errors": "fail"})),
    ("framework.launcher=torchrun", ("framework", "torch")),
    ("framework.elastic.max_nodes=4", ("framework", {"kind": "torch", "elastic": {"max_nodes": 4}})),
    ("framework={kind: jax}", ("framework", "jax")),
    ("storage.0.path=/other", ("storage", [{"path": "/other", "claim": "one"}])),
    ("storage.1={path: /b, claim: b}", ("storage", [{"path": "/data", "claim": "one"}, {"path": "/b", "claim": "b"}])),
    ("labels.team\\.example/name=a", ("labels", {"team.example/name": "a"})),
    ("args=[1, two]", ("args", ["1", "two"])),
    ("resources_per_node.cpu=3", ("resources_per_node", {"cpu": "3"})),
    ("env.A={secret: s, key: k}", ("env", {"A": {"secret": "s", "key": "k"}, "B": "kept"})),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "field"), SETTINGS, ids=[s for s, _ in SETTINGS])
def test_set_changes_any_field(validated: Any, setting: str, field: tuple[str, Any]) -> None:
    launcher = ["--set", "framework.launcher=torchrun", "--set", "procs_per_node=1"] if "framework" in setting else []
    name, value = field
    assert validated("job.yaml", *launcher, "--set", setting)[name] == value


def test_set_to_null_removes_a_field(validated: Any) -> None:
    job = validated("job.yaml", "--set", "deadline=null", "--set", "env.A=null", "--set", "storage.0=null")
    assert "deadline" not in job
    assert "storage" not in job
    assert job["env"] == {"B": "kept"}


def test_set_is_applied_after_the_other_flags(validated: Any) -> None:
    assert validated("job.yaml", "--set", "num_nodes=7", "--nodes", "2")["num_nodes"] == 7


def test_a_setting_does_not_change_the_parsed_file() -> None:
    data = {"env": {"A": "1"}, "storage": [{"path": "/a"}]}
    changed = with_field(with_field(data, ("env", "A"), "2"), ("storage", "0", "path"), "/b")
    assert data == {"env": {"A": "1"}, "storage": [{"path": "/a"}]}
    assert changed == {"env": {"A": "2"}, "storage": [{"path": "/b"}]}


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--set", "deadline"], "--set: 'deadline' is not PATH=VALUE; write it like restart.max_restarts=3"),
        (["--hang", "5m"], "--hang: '5m' has no value; write it like after=60s,first=10m,action=fail, or off"),
        (["--hang", "afte=5m"], "--hang: unknown key 'afte'; did you mean 'after'?"),
        (["--set", "a..b=1"], "--set: 'a..b=1' is not PATH=VALUE; write it like restart.max_restarts=3"),
        (["--set", "args=[1"], "--set: the value of 'args' is not readable as YAML; quote it: '[1'"),
        (["--set", "name.x=1"], "name.x: 'x' lies within 'digits', which is neither a mapping nor a list"),
        (["--set", "storage.5.path=/x"], "storage.5.path: '5' is not an index of a list of 1; give 0 to 1"),
        (["--env", "A_0"], "--env: 'A_0' is not set in this shell; export it, or write it like LR=0.1"),
        (["--env", "=1"], "--env: '=1' is not NAME=VALUE; write it like LR=0.1"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_line(cli: Cli, tmp_path: Path, argv: list[str], error: str) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    result = cli("validate", "job.yaml", *argv)
    assert (result.code, result.errors) == (2, [f"stepset: {error}"])


def test_an_invalid_value_names_the_file_only_if_it_is_from_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("script: train.py\nnum_nodes: 0\n")
    assert cli("validate", "job.yaml").errors == ["stepset: job.yaml: num_nodes: 0 is too small; give 1 or more"]
    assert cli("validate", "job.yaml", "-n", "-1").errors == ["stepset: --nodes: -1 is too small; give 1 or more"]


def test_parsing_is_exact() -> None:
    assert parse_setting("a.b=c=d") == (("a", "b"), "c=d")
    assert parse_env(["A=b=c"], {}) == {"A": "b=c"}
    with pytest.raises(BadInputError):
        with_field({"a": [1]}, ("a", "x"), 1)
