"""The command line on a real cluster: tables, filters, JSON documents, selected log lines, checkpoints, deletion."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from stepset.cli.output.schema import output_schema
from tests.cluster.many import shared
from tests.cluster.runs import STEPSET, Runs
from tests.waiting import until

pytestmark = pytest.mark.cluster

VALIDATOR = Draft202012Validator(output_schema())

SCRIPT = """
import json, os, pathlib, time
attempt, begin = os.environ['STEPSET_ATTEMPT'], os.environ.get('STEPSET_RESUME_FROM')
saved = pathlib.Path(os.environ['STEPSET_CHECKPOINT_DIR'])
print('attempt', attempt, 'from', begin, flush=True)
pathlib.Path(os.environ['STEPSET_RESULT_FILE']).write_text(json.dumps({'attempt': attempt, 'from': begin}))
for n in range(5):
    print('line', n, flush=True)
    time.sleep(0.2)
(saved / f'step-{len(list(saved.iterdir()))}').write_text('')
if (saved / 'wait').exists():
    time.sleep(600)
"""


def out(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    return directory


@pytest.fixture
def job(runs: Runs, checkpoints: Path) -> str:
    """A job file whose single rank prints five lines and writes a checkpoint."""
    (runs.directory / "train.py").write_text(SCRIPT)
    return runs.job_file(
        script="train.py",
        args=["--epochs", "3"],
        labels={"team": "vision"},
        checkpoint_dir=str(checkpoints),
        pod_template=shared(runs.cluster, checkpoints),
    )


def check_logs(runs: Runs, name: str) -> None:
    """Checks the flags that select lines of a run that is over."""
    everything = out(runs.cli("logs", name)).splitlines()
    assert out(runs.cli("logs", name, "--tail", "2")).splitlines() == everything[-2:]
    stamped = out(runs.cli("logs", name, "--timestamps", "--since", "1h", "-f")).splitlines()
    times = [datetime.fromisoformat(line.split(" ", 1)[0]) for line in stamped]
    assert [line.split(" ", 1)[1] for line in stamped] == everything
    assert (times[-1] - times[0]).total_seconds() > 0.5
    assert out(runs.cli("logs", name, "--since", "1s")) == ""
    previous = runs.cli("logs", name, "--previous")
    assert (previous.returncode, previous.stdout) == (2, "")


@pytest.mark.parametrize("runs", ["jobset", "trainjob", "statefulset", "job"], indirect=True)
def test_a_run_is_listed_selected_continued_and_deleted(runs: Runs, job: str, checkpoints: Path) -> None:
    flags = ("--target", runs.target)
    first = json.loads(out(runs.cli("run", job, *flags, "-o", "json")))
    assert list(VALIDATOR.iter_errors(first)) == []
    assert (first["namespace"], first["labels"], first["program"]) == (
        runs.namespace, {"team": "vision"}, "train.py --epochs 3",
    )  # fmt: skip
    assert not any("resuming" in note for note in first["notes"])
    name = first["name"]
    listed = out(runs.cli("list"))
    assert re.search(rf"^{name} +Succeeded +1/1 .* train\.py", listed, re.MULTILINE), listed
    assert max(map(len, listed.splitlines())) <= 80
    assert out(runs.cli("list", "-l", "team in (vision)", "--phase", "succeeded", "-o", "name")).split() == [name]
    found = json.loads(out(runs.cli("list", "--since", "1h", "-o", "json")))
    assert list(VALIDATOR.iter_errors(found)) == []
    nothing = runs.cli("list", "-l", "!team")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert f"no runs found in namespace {runs.namespace} with labels !team; for other" in nothing.stderr

    if runs.target != "statefulset":  # it is scaled to zero at the end of its run, and its pods are deleted
        check_logs(runs, name)

    again = json.loads(out(runs.cli("run", job, *flags, "--resume", "-o", "json")))
    assert any(re.match(r"resuming from step-0, written .*\d\d:\d\d", note) for note in again["notes"])
    assert again["result"] == {"attempt": "1", "from": str(checkpoints)}
    fresh = json.loads(out(runs.cli("run", job, *flags, "--fresh", "-o", "json")))
    assert fresh["result"] == {"attempt": "0", "from": None}
    refused = runs.cli("run", "--resume", name)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the cluster does not store the job" in refused.stderr

    assert out(runs.cli("delete", name, again["name"], "--dry-run")).split() == [name, again["name"]]
    deleted = json.loads(out(runs.cli("delete", name, again["name"], "-o", "json")))
    assert list(VALIDATOR.iter_errors(deleted)) == []
    # The objects of a run exist until its pods have ended.
    assert until(lambda: out(runs.cli("list", "-o", "name")).split() == [fresh["name"]], 90)
    assert {path.name for path in checkpoints.iterdir()} == {"step-0", "step-1", "step-2"}


def test_a_followed_log_begins_with_the_tail_and_loses_no_line(runs: Runs, job: str, checkpoints: Path) -> None:
    (checkpoints / "wait").touch()
    name = out(runs.cli("run", job, "--detach")).strip()
    assert until(lambda: "line 0" in runs.cli("logs", name).stdout)
    with runs.program("logs", name, "-f", "--tail", "1") as follower, runs.program("status", name, "-w") as watcher:
        assert follower.stdout
        first = follower.stdout.readline()
        number = int(first.rpartition(" ")[2])
        assert [follower.stdout.readline() for _ in range(number + 1, 5)] == [
            f"[rank 0] line {n}\n" for n in range(number + 1, 5)
        ]
        active = runs.cli("delete", name)
        assert (active.returncode, f"{name}: the run is not over: Running" in active.stderr) == (2, True)
        assert runs.cli("cancel", name, "--now").returncode == 0
        assert follower.wait(60) == 0
        shown, _ = watcher.communicate(timeout=60)
    assert shown.splitlines()[0].startswith(f"{name}: ")


def test_only_an_account_that_may_list_all_namespaces_sees_their_runs(runs: Runs, job: str) -> None:
    name = out(runs.cli("run", job, "--detach")).strip()
    words = (STEPSET, "list", "--backend", "kubernetes", "--all-namespaces", "--kubeconfig")

    def listed(kubeconfig: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, kubeconfig], capture_output=True, text=True, timeout=60)

    refused = listed(str(runs.kubeconfig))
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.endswith("; list the runs of one namespace instead: --namespace NAME\n")
    header, *rows = out(listed(runs.cluster.kubeconfig)).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert any(row.split()[:2] == [runs.namespace, name] for row in rows)
