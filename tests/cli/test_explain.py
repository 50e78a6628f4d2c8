"""`stepset explain` shows the plan: every variable of every pod group, its rule, and the value that it replaced."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset import TrainingJob, explain
from stepset.frameworks import make_plan
from tests.cli.conftest import Cli

MPI = ["--framework", "mpi", "-n", "3", "-p", "2", "--command", "--", "./solver"]


@pytest.fixture
def train(cli: Cli, tmp_path: Path) -> Cli:
    """`stepset explain train.py` with flags."""
    (tmp_path / "train.py").write_text("")
    return lambda *argv: cli("explain", "train.py", *argv)


def test_each_variable_has_a_row_with_value_and_rule(train: Cli) -> None:
    result = train("--nodes", "2", "--procs-per-node", "2")
    job = TrainingJob(script="train.py", num_nodes=2, procs_per_node=2)
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    for row in explain(job):
        assert f"{row.variable} {row.value} {row.rule}" in lines
    assert "train: torch, 2 nodes x 2 processes = 4 ranks" in lines
    assert "node: 2 pods" in lines
    assert lines[1].startswith("Values of a JobSet's pods. A local run has other addresses")


def test_the_command_of_each_group_is_shown(cli: Cli) -> None:
    lines = cli("explain", *MPI).out.splitlines()
    assert "  runs an ssh server until the launcher has ended" in lines
    runs = lines.index("  (mpirun starts the ranks, because the command starts none)") - 1
    assert lines[runs].startswith("  runs mpirun -x ") and lines[runs].endswith(" ./solver")
    assert "  solver-node-0-2.solver slots=2" in lines


def test_the_command_is_shown_quoted_for_a_shell(train: Cli) -> None:
    lines = train("--", "--title", "two words").out.splitlines()
    assert "  runs torchrun /stepset/code/train.py --title 'two words'" in lines


def test_what_the_job_replaced_is_shown_beside_the_value(train: Cli) -> None:
    result = train("-n", "2", "--set", "env.PET_NNODES={value: '4', override: true}")
    row = next(line for line in result.out.splitlines() if line.startswith("PET_NNODES"))
    assert row.split() == ["PET_NNODES", "4", "overridden", "by", "the", "job", "2"]


def test_without_a_terminal_text_is_neither_cut_nor_coloured(train: Cli) -> None:
    value = "x" * 500
    result = train("-e", f"LONG={value}", "-e", "MARKUP=[red]a[/red]")
    assert value in result.out
    assert "[red]a[/red]" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_contain_the_whole_plan(cli: Cli, form: str, load: Any) -> None:
    shown = load(cli("explain", "-o", form, *MPI).out)
    job = TrainingJob(framework="mpi", num_nodes=3, procs_per_node=2, command=["./solver"])
    plan = make_plan(job)
    assert [(g["name"], g["pods"], len(g["env"])) for g in shown["groups"]] == [
        (g.name, g.count, len(g.env)) for g in plan.groups
    ]
    rows = [(g["name"], e["variable"], e["value"], e["rule"]) for g in shown["groups"] for e in g["env"]]
    assert rows == [(r.group, r.variable, r.value, r.rule) for r in explain(job)]
    assert shown["world_size"] == 6
    assert shown["groups"][-1]["command"][-1] == "./solver"
    assert shown["groups"][-1]["start_after"] == [{"group": "node", "condition": "Ready"}]


def test_a_secret_is_shown_by_its_name_only(train: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", "hunter2")
    result = train("--set", "env.HF_TOKEN={secret: hub, key: token}")
    assert "<secret hub, key token>" in result.out
    assert "hunter2" not in result.out + result.err


def test_an_unknown_format_is_bad_input(train: Cli) -> None:
    result = train("-o", "xml")
    assert (result.code, result.errors) == (2, ["stepset: --output: 'xml' is not known; use text, json or yaml"])


def test_a_closed_reader_is_not_an_error(program: Cli, tmp_path: Path) -> None:
    import subprocess

    from tests.cli.conftest import STEPSET

    (tmp_path / "train.py").write_text("")
    big = [
        word for name in ("A", "B") for word in ("-e", f"{name}={'x' * 100_000}")
    ]  # more than the capacity of a pipe
    with subprocess.Popen(
        [STEPSET, "explain", tmp_path / "train.py", *big], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


class TestFiles:
    """`--files` lists what is shipped."""

    @pytest.fixture
    def code(self, tmp_path: Path) -> Path:
        (tmp_path / "code/lib").mkdir(parents=True)
        files = {"train.py": 10, "lib/table.csv": 2000, "data.bin": 5, ".gitignore": 0}
        for name, size in files.items():
            (tmp_path / "code" / name).write_text("x" * size)
        (tmp_path / "code/.gitignore").write_text("*.bin\n")
        (tmp_path / "job.yaml").write_text("{code: code, script: train.py}")
        return tmp_path / "code"

    def test_the_largest_come_first_and_the_ignored_are_counted(self, cli: Cli, code: Path) -> None:
        lines = cli("explain", "job.yaml", "--files").out.splitlines()
        assert [line.split() for line in lines[:3]] == [
            ["File", "Bytes"],
            ["lib/table.csv", "2000"],
            ["train.py", "10"],
        ]
        assert lines[4].startswith("2 files, 2010 bytes, ")
        assert lines[4].endswith(" packed; at most 1048576 can be shipped")
        assert lines[5].startswith("note: code: 1 file is ignored because of .gitignore;")

    @pytest.mark.parametrize("form", ["json", "yaml"])
    def test_as_data(self, cli: Cli, code: Path, form: str) -> None:
        shown = (json.loads if form == "json" else yaml.safe_load)(
            cli("explain", "job.yaml", "--files", "-o", form).out
        )
        assert shown["files"] == [{"path": "lib/table.csv", "size": 2000}, {"path": "train.py", "size": 10}]
        assert (shown["size"], shown["limit"]) == (2010, 1048576)
        assert 0 < shown["packed"] < 2010

    def test_code_that_is_too_large_is_listed(self, cli: Cli, code: Path) -> None:
        (code / "weights").write_bytes(random.Random(1).randbytes(1_200_000))
        result = cli("explain", "job.yaml", "--files")
        assert (result.code, result.out.splitlines()[1].split()) == (0, ["weights", "1200000"])
        with (code / "weights").open("wb") as file:
            file.truncate(65 * 1024 * 1024)
        assert "too large to pack; at most" in cli("explain", "job.yaml", "--files").out

    def test_files_that_cannot_be_shipped_are_errors(self, cli: Cli, code: Path) -> None:
        (code / ".env").write_text("TOKEN=1")
        result = cli("explain", "job.yaml", "--files")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("stepset: code: .env looks like credentials, ")

    def test_a_script_alone_is_the_only_file(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("pass\n")
        lines = cli("explain", "train.py", "--files").out.splitlines()
        assert lines[1].split() == ["train.py", "5"]
        assert lines[3] == "1 file, 5 bytes, 5 packed; at most 1048576 can be shipped"

    def test_a_module_has_no_files(self, cli: Cli) -> None:
        assert cli("explain", "-m", "train", "--files").out.startswith("no files are shipped")


class TestPodTemplate:
    """What `pod_template` changes in the pods is shown."""

    @staticmethod
    def _shown(cli: Cli, tmp_path: Path, *flags: str, **container: Any) -> Any:
        job = {"command": ["a"], "image": "example/train:1", "pod_template": {"containers": [container]}}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        return cli("explain", "job.yaml", *flags)

    def test_command_image_and_variables(self, cli: Cli, tmp_path: Path) -> None:
        given = {"command": ["b"], "args": ["two words"], "image": "example/b:2", "env": [{"name": "A", "value": "1"}]}
        lines = self._shown(cli, tmp_path, name="node", **given).out.splitlines()
        assert lines[4:7] == ["  runs b 'two words'", "  image example/b:2", "  (set by pod_template)"]
        assert [line.split()[:2] for line in lines if "set by pod_template" in line and "A" in line] == [["A", "1"]]

    def test_arguments_of_the_images_own_command(self, cli: Cli, tmp_path: Path) -> None:
        lines = self._shown(cli, tmp_path, name="node", command=[], args=["b"]).out.splitlines()
        assert lines[4] == "  runs the command of the image example/train:1 with b"

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_an_unknown_field_is_bad_input(self, cli: Cli, tmp_path: Path, form: str) -> None:
        result = self._shown(cli, tmp_path, "-o", form, name="node", imag="b")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("stepset: job.yaml: pod_template.containers.node: unknown field 'imag'; did you")


def test_the_requirements_of_job_and_script_are_listed_with_their_origin(cli: Cli, tmp_path: Path) -> None:
    metadata = '# /// script\n# requires-python = ">=3.9"\n# dependencies = ["rich<15"]\n# ///\n'
    (tmp_path / "train.py").write_text(metadata)
    words = ("explain", "train.py", "--set", "requirements=['einops>=0.8']")
    lines = [" ".join(line.split()) for line in cli(*words).out.splitlines()]
    at = lines.index("requirements: uv installs the packages that the ranks' Python lacks")
    assert lines[at + 2 : at + 5] == [
        "einops>=0.8 requirements of the job",
        "rich<15 metadata of the script",
        "Python >=3.9 metadata of the script",
    ]
    shown = json.loads(cli(*words, "-o", "json").out)
    assert shown["requirements"] == [
        {"requirement": "einops>=0.8", "origin": "job"},
        {"requirement": "rich<15", "origin": "script"},
    ]
    assert shown["requires_python"] == ">=3.9"


def test_invalid_metadata_of_the_script_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("# /// script\n# dependencies = 1\n# ///\n")
    result = cli("explain", "train.py")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
