"""Every command that prints facts has `-o json`, whose documents match docs/cli-output.schema.json."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from stepset.cli.output.documents import run_document, stacks_document
from stepset.cli.output.schema import output_schema
from stepset.hang import SlowRanks
from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus, Waiting
from stepset.watch.stacks.document import read_document
from stepset.watch.stacks.model import RunStacks
from tests.cli.conftest import STEPSET, Cli
from tests.cli.scripts import FLAGS, write_scripts
from tests.stacks import document, loading, waiting
from tests.waiting import until
from tests.watch.hangs.test_stalled import hangs, status

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = output_schema()
FORMATS = FormatChecker(())
FORMATS.checks("date-time", ValueError)(lambda text: not isinstance(text, str) or datetime.fromisoformat(text))
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=FORMATS)


def checked(text: str, kind: str) -> Any:
    """Returns a document, which matches the schema and has no fields that the schema does not describe."""
    found = json.loads(text)
    assert list(VALIDATOR.iter_errors(found)) == []
    assert (found["apiVersion"], found["kind"]) == ("stepset.dev/v1", kind)
    assert set(found) <= set(SCHEMA["$defs"][kind]["properties"])
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the scripts, and a home with a run that succeeded and one that failed."""
    directory = tmp_path_factory.mktemp("documents")
    write_scripts(directory)
    env = {**os.environ, "STEPSET_HOME": str(directory / "home")}
    for name in ("train", "fail"):
        subprocess.run([STEPSET, "run", f"{name}.py", *FLAGS], cwd=directory, env=env, capture_output=True, timeout=120)
    yield directory


@pytest.fixture
def known(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, in that directory."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("STEPSET_HOME", str(home / "home"))
    return cli


def test_the_schema_is_valid_and_is_what_make_docs_would_write() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    spec = importlib.util.spec_from_file_location("output_schema", ROOT / "tools" / "output_schema.py")
    assert spec and spec.loader
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert json.loads(writer.FILE.read_text(encoding="utf-8")) == SCHEMA, "run `make docs`"


def test_every_field_of_a_run_is_described() -> None:
    undescribed = [
        name
        for name, field in SCHEMA["$defs"]["Run"]["properties"].items()
        if "description" not in field and name not in ("apiVersion", "kind")
    ]
    assert undescribed == []


def test_the_stacks_of_a_run_match() -> None:
    ranks = read_document(document(waiting(0), loading(1), {"rank": 2}))
    found = stacks_document(RunStacks("a-1", 1.5, ranks, ("pod a: refused",)))
    assert checked(json.dumps(found), "Stacks")["at"] == "1970-01-01T00:00:01.500Z"


def test_a_run_with_every_detail_matches() -> None:
    failure = Failure(FailureKind.UNSCHEDULABLE, "no room", "wait", rank=0, pod="a", tail=("x",), events=("y",))
    run = RunStatus(
        "a-1", "a", "kubernetes", Phase.FAILED, created=1.5, started=2.0, finished=3.0, expires=4.0, failure=failure,
        ranks=(RankStatus("rank 0", 0, "a", signal=9, last_line_at=2.5),),
        progress=Progress(1, 0.5, {"loss": 1.0}), trouble=failure,
        waiting=Waiting("team", position=1), result={"any": ["thing"]}, labels={"team": "x"}, namespace="ml",
    )  # fmt: skip
    found = checked(json.dumps(run_document(run)), "Run")
    assert found["created"] == "1970-01-01T00:00:01.500Z"
    assert found["ranks"][0]["last_line_at"] == "1970-01-01T00:00:02.500Z"
    assert run_document(run.with_(created=0.0))["created"] is None


@pytest.mark.local
@pytest.mark.parametrize(
    ("argv", "kind", "code"),
    [
        (("run", "train.py", *FLAGS), "Run", 0),
        (("status", "fail"), "Run", 0),
        (("wait", "fail"), "Run", 1),
        (("diagnose", "fail"), "Run", 1),
        (("cancel", "train"), "Run", 0),
        (("list",), "RunList", 0),
        (("doctor",), "Diagnosis", 0),
        (("failures",), "FailureKinds", 0),
        (("failures", "usererror"), "FailureKinds", 0),
        (("list", "--disk-usage"), "RunList", 0),
        (("prune", "--older-than", "1h"), "DeletedRuns", 0),
        (("explain", "train.py", "--gpus", "2"), "Explanation", 0),
        (("explain", "train.py", "--files"), "ShippedFiles", 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_output_of_each_command_matches(known: Cli, argv: tuple[str, ...], kind: str, code: int) -> None:
    result = known(*argv, "-o", "json")
    assert result.code == code
    checked(result.out, kind)


@pytest.mark.local
def test_the_exit_code_in_the_document_is_that_of_wait(known: Cli) -> None:
    ended = known("wait", "fail", "-o", "json")
    assert json.loads(ended.out)["exit_code"] == ended.code == 1


@pytest.mark.local
def test_a_deleted_run_matches(known: Cli) -> None:
    name = json.loads(known("status", "train", "-o", "json").out)["name"]
    dry = checked(known("delete", name, "--dry-run", "-o", "json").out, "DeletedRuns")
    assert (dry["dry_run"], [run["name"] for run in dry["items"]]) == (True, [name])
    assert not checked(known("delete", name, "-o", "json").out, "DeletedRuns")["dry_run"]
    assert known("status", name).code == 2


@pytest.mark.local
def test_a_detached_run_matches_and_every_change_of_it_is_a_document(known: Cli, home: Path) -> None:
    name = checked(known("run", "sleep.py", *FLAGS, "-d", "-o", "json").out, "Run")["name"]
    argv = [STEPSET, "status", name, "--watch", "-o", "json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watcher:
        assert until(lambda: known("logs", name).out.count("ready") == 4)
        assert known("cancel", name, "-o", "json").code == 0
        out, _ = watcher.communicate(timeout=60)
        assert watcher.returncode == 0
    documents = [checked(line, "Run") for line in out.splitlines()]
    assert documents[-1]["failure"]["kind"] == "Cancelled"
    assert all(document["phase"] in ("Pending", "Running") for document in documents[:-1])


@pytest.mark.local
def test_the_job_that_validate_prints_is_a_job_file(known: Cli, home: Path) -> None:
    (home / "again.json").write_text(known("validate", "train.py", "--nodes", "2", "-o", "json").out)
    assert known("validate", "again.json").code == 0


def test_a_detached_run_outlives_its_terminal_and_starts_nothing_for_bad_input(known: Cli, home: Path) -> None:
    words = f"'{STEPSET}' run -d sleep.py {' '.join(FLAGS)} --name hangup; kill -HUP $$"
    done = subprocess.run(["setsid", "bash", "-c", words], capture_output=True, text=True, timeout=60)
    name = done.stdout.strip()
    assert name.startswith("hangup-")
    try:
        assert until(lambda: known("logs", name).out.count("ready") == 4)
        assert until(lambda: known("status", name).out.count("Running") == 5)
    finally:
        assert known("cancel", name).code == 0
    wrong = known("run", "-d", "train.py", "-n", "999999")
    assert (wrong.code, len(wrong.errors)) == (2, 1)
    assert wrong.err.startswith("stepset: num_nodes, procs_per_node: ")


def test_a_run_with_a_slow_rank_matches_the_schema_and_can_be_read_again() -> None:
    slow = status(hangs()).with_(slow=SlowRanks((2,), "node 1", "", 97, 100, 0.215, 0.18))
    found = checked(json.dumps(run_document(slow)), "Run")
    assert found["slow"] == {
        "ranks": [2], "node": "node 1", "gpu": "", "last": 97, "compared": 100, "delay": 0.215, "share": 0.18,
    }  # fmt: skip
    assert RunStatus.from_dict(json.loads(json.dumps(slow.to_dict()))) == slow


def test_a_run_with_a_hang_matches_the_schema() -> None:
    found = checked(json.dumps(run_document(status(hangs()))), "Run")
    assert found["hang"]["kind"] == "Missing"
    assert found["hang"]["since"] == "1970-01-01T00:16:40.000Z"
    guilty = [group for group in found["hang"]["groups"] if group["guilty"]]
    assert [(group["ranks"], group["frame"]["file"], group["frame"]["line"]) for group in guilty] == [
        ([1], "/app/data.py", 17)
    ]
