"""Checkpoints of earlier runs: `stepset run --resume` and `--fresh`, and how long runs are kept."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from stepset.backends.local.runs.store import RunStore
from stepset.run_status import Phase, RunStatus
from stepset.spec import TrainingJob
from tests.cli.conftest import Cli, CommandResult
from tests.waiting import until

pytestmark = pytest.mark.local

SCRIPT = """
import json, os, pathlib, sys, time

directory = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
begin, attempt = os.environ.get("STEPSET_RESUME_FROM"), os.environ["STEPSET_ATTEMPT"]
if os.environ["RANK"] == "0":
    (directory / f"step-{len(list(directory.iterdir()))}").write_text("")
    found = {"from": begin, "attempt": attempt, "args": sys.argv[1:]}
    pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(found))
    if attempt == "0" and sys.argv[1:] == ["fail"]:
        sys.exit(1)
if sys.argv[1:] == ["wait"]:
    time.sleep(600)
"""
FLAGS = ("-n", "2", "--set", "framework.launcher=none", "--checkpoint-dir", "ckpt")


@pytest.fixture
def stepset(cli: Cli, tmp_path: Path) -> Cli:
    """The command line in a directory with a script."""
    (tmp_path / "train.py").write_text(SCRIPT)
    return cli


def result(done: CommandResult) -> dict[str, object]:
    """The result of a run that was started with `-o json`."""
    assert done.code == 0, done.err
    found: dict[str, object] = json.loads(done.out)["result"]
    return found


def test_the_arguments_of_a_run_of_a_function_cannot_be_replaced(cli: Cli, tmp_path: Path) -> None:
    job = {"function": "print('trained')", "framework": "plain", "name": "notebook"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert cli("run", "job.json").code == 0
    done = cli("run", "--resume", "notebook", "--", "77")
    assert done.code == 2
    assert done.err.startswith("stepset: arguments after --: run notebook-"), done.err
    assert cli("run", "--resume", "notebook").code == 0


def test_a_second_run_continues_from_the_checkpoint_and_says_from_which(stepset: Cli, tmp_path: Path) -> None:
    first = stepset("run", "train.py", *FLAGS, "-o", "json")
    assert result(first)["from"] is None
    assert "resuming" not in first.err
    assert "already succeeded" not in first.err
    written = (tmp_path / "ckpt" / "step-0").stat().st_mtime
    second = stepset("run", "train.py", *FLAGS, "-o", "json")
    assert result(second) == {"from": str(tmp_path / "ckpt"), "attempt": "0", "args": []}
    note = f"resuming from {tmp_path / 'ckpt' / 'step-0'}, written {time.strftime('%H:%M', time.localtime(written))}"
    assert f"stepset: note: {note}\n" in second.err
    assert note in json.loads(second.out)["notes"]
    succeeded = f"run {json.loads(first.out)['name']} has already succeeded with this checkpoint_dir, and this run"
    assert (
        f"stepset: note: {succeeded} starts from its checkpoint; to train from the beginning, give --fresh"
        in second.err
    )


def test_a_script_without_the_flags_of_the_earlier_run_gets_the_command_that_has_them(stepset: Cli) -> None:
    failed = stepset("run", "train.py", *FLAGS, "-o", "json", "--", "fail")
    assert failed.code == 1, failed.err
    name = json.loads(failed.out)["name"]
    resumed = stepset("run", "train.py", "--resume", "--framework", "plain")
    note = f"to continue from the checkpoint of run {name}, with its whole job: stepset run --resume {name}"
    assert f"stepset: note: {note}\n" in resumed.err
    assert note not in stepset("run", "--resume", name).err


def test_a_fresh_run_ignores_the_checkpoint_keeps_it_and_restarts_from_its_own(stepset: Cli, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "old").touch()
    fresh = stepset("run", "train.py", *FLAGS, "--fresh", "-o", "json")
    assert result(fresh)["from"] is None
    assert {path.name for path in (tmp_path / "ckpt").iterdir()} == {"old", "step-1"}
    again = stepset("run", "train.py", *FLAGS, "--fresh", "--max-restarts", "1", "-o", "json", "--", "fail")
    assert (result(again)["attempt"], result(again)["from"]) == ("1", str(tmp_path / "ckpt"))
    assert f"resuming from {tmp_path / 'ckpt' / 'step-2'}, " in again.err


def test_resume_continues_a_run_with_its_job_and_the_next_attempt(
    stepset: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stepset("run", "train.py", *FLAGS, "--", "fail").code == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the paths of the job stay relative to its own directory
    last = stepset("run", "--resume", "-o", "json")
    assert result(last) == {"from": str(tmp_path / "ckpt"), "attempt": "1", "args": ["fail"]}
    assert "stepset: note: continuing run train-" in last.err
    name = json.loads(last.out)["name"]
    for words in ((name,), ("train",)):
        assert stepset("run", "--resume", *words).code == 0
    changed = stepset("run", "--resume", "train", "-o", "json", "--", "other")
    assert result(changed) == {"from": str(tmp_path / "ckpt"), "attempt": "4", "args": ["other"]}
    monkeypatch.chdir(tmp_path)
    of_script = stepset("run", "train.py", *FLAGS, "--resume", "-o", "json")
    assert result(of_script) == {"from": str(tmp_path / "ckpt"), "attempt": "5", "args": []}


def test_resume_with_a_script_does_not_need_the_stored_job(stepset: Cli, tmp_path: Path) -> None:
    assert stepset("run", "train.py", *FLAGS).code == 0
    [stored] = [path for path in tmp_path.rglob("job.json") if path.parent.name.startswith("train-")]
    stored.write_text("{")
    assert stepset("run", "train.py", *FLAGS, "--resume").code == 0


def test_resume_does_not_continue_the_run_of_another_script_unless_its_name_is_given(
    stepset: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stepset("run", "train.py", *FLAGS).code == 0
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    Path("train.py").write_text(SCRIPT)
    refused = stepset("run", "train.py", *FLAGS, "--resume")
    assert refused.code == 2
    files = f"executed {tmp_path / 'train.py'}, not {tmp_path / 'other' / 'train.py'}"
    assert files in refused.err
    assert "; to start a separate job, pass a different --name; to continue run train-" in refused.err
    assert refused.err.endswith(" with this file, pass --name train\n")
    named = stepset("run", "train.py", *FLAGS, "--resume", "--name", "train")
    assert named.code == 0
    assert f"executed {tmp_path / 'train.py'}, this run executes {tmp_path / 'other' / 'train.py'}" in named.err


def test_resume_states_that_there_is_no_checkpoint(stepset: Cli, tmp_path: Path) -> None:
    # Rank 1 waits, because a run whose node 1 fails at once may end before node 0 has reported the checkpoint.
    script = "import os, sys, time\nif os.environ['RANK'] == '0': sys.exit(1)\ntime.sleep(600)"
    (tmp_path / "saves_nothing.py").write_text(script)
    assert stepset("run", "saves_nothing.py", *FLAGS).code == 1
    note = f"no checkpoint was found in {tmp_path / 'ckpt'}, so the training starts from its beginning"
    (tmp_path / "ckpt" / ".hidden").touch()  # not a checkpoint
    again = stepset("run", "--resume")
    assert again.errors.count(f"stepset: note: {note}") == 1
    assert "  resume  " not in again.err
    (tmp_path / "ckpt" / "step-1").touch()
    assert "no checkpoint was found" not in (found := stepset("run", "--resume")).err
    assert f"resuming from {tmp_path / 'ckpt' / 'step-1'}" in found.err and "  resume  " in found.err


def test_a_run_that_is_not_over_is_not_continued(stepset: Cli) -> None:
    name = stepset("run", "-d", "train.py", *FLAGS, "--", "wait").out.strip()
    try:
        assert until(lambda: "Running" in stepset("status", name).out)
        refused = stepset("run", "--resume", name)
        assert (refused.code, len(refused.errors)) == (2, 1)
        assert f"run {name} is not over: Running; cancel it first" in refused.err
        kept = stepset("delete", name)
        assert (kept.code, kept.out) == (2, "")
        assert f"{name}: the run is not over: Running; cancel it first" in kept.err
    finally:
        assert stepset("cancel", name, "--now").code == 0
    assert stepset("delete", name).out == f"{name}\n"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("run", "--resume"), "--resume: there is no run in "),
        (("run", "--resume", "nope"), "nope: no such run, and no run of a job of that name"),
        (("run", "train.py", "--resume"), "train: no such run, and no run of a job of that name"),
        (("run", "train.py", "--resume", "--fresh"), "--fresh: --resume continues from the checkpoint; leave one"),
    ],
)
def test_what_cannot_be_continued_is_bad_input(stepset: Cli, argv: tuple[str, ...], error: str) -> None:
    refused = stepset(*argv)
    assert (refused.code, refused.out, len(refused.errors)) == (2, "", 1)
    assert refused.err.startswith(f"stepset: {error}")


def ended(name: str, *, days: float, ttl: str | None = None) -> None:
    """Creates the directory of a run that ended some days ago."""
    at = time.time() - days * 86_400
    status = RunStatus(name, "job", "local", phase=Phase.SUCCEEDED, created=at - 1, finished=at)
    _, lock = RunStore(Path(os.environ["STEPSET_HOME"])).create(status, TrainingJob(command=["true"], ttl=ttl))
    os.close(lock)


@pytest.mark.parametrize(
    ("keep", "deleted"),
    [(None, {"old"}), ("never", set()), ("1h", {"old", "recent"}), ("60d", set())],
)
def test_the_directories_of_ended_runs_are_deleted_after_30_days(
    stepset: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str | None, deleted: set[str]
) -> None:
    if keep is not None:
        monkeypatch.setenv("STEPSET_KEEP_RUNS", keep)
    ended("old", days=31)
    ended("recent", days=29)
    ended("asked", days=90, ttl="100d")
    assert set(stepset("prune", "--dry-run").out.split()) == deleted
    assert stepset("run", "train.py", *FLAGS).code == 0  # the start of a run deletes them
    left = {path.name for path in (tmp_path / "home" / "runs").iterdir()}
    assert {"old", "recent", "asked"} - left == deleted
    assert (tmp_path / "ckpt" / "step-0").exists()


def test_how_long_runs_are_kept_must_be_a_duration(stepset: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_KEEP_RUNS", "soon")
    refused = stepset("run", "train.py")
    assert (refused.code, len(refused.errors)) == (2, 1)
    assert refused.err.startswith("stepset: STEPSET_KEEP_RUNS: 'soon' is not a duration")


def test_checkpoints_are_not_written_where_runs_are_deleted(stepset: Cli, tmp_path: Path) -> None:
    inside = tmp_path / "home" / "runs" / "train-1" / "ckpt"
    refused = stepset("run", "train.py", "--set", "framework.launcher=none", "--checkpoint-dir", str(inside))
    assert (refused.code, len(refused.errors)) == (2, 1)
    assert refused.err.startswith(f"stepset: checkpoint_dir: {inside} is within ")
    assert not inside.exists()


def test_delete_takes_names_of_runs_only_and_deletes_all_or_nothing(stepset: Cli) -> None:
    ended("one", days=1)
    ended("two", days=2)
    dry = stepset("delete", "one", "two", "--dry-run")
    assert (dry.code, dry.out, dry.err) == (0, "one\ntwo\n", "stepset: would delete 2 runs\n")
    of_job = stepset("delete", "one", "job")
    assert (of_job.code, of_job.out) == (2, "")
    assert of_job.err == (
        "stepset: deleted nothing\n"
        "stepset: job: no such run; it is the name of a job, whose newest run is one; to delete all runs of the job:"
        " stepset delete --job job (in Python: stepset.delete(job='job'))\n"
    )
    assert stepset("delete", "one", "nope").code == 2
    assert stepset("list", "-o", "name").out == "one\ntwo\n"
    assert stepset("delete", "one", "two", "one").out == "one\ntwo\n"
    assert stepset("list", "-o", "name").out == ""
