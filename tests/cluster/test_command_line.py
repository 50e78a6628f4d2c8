"""The command line on a real cluster: tables, filters, JSON documents, selected log lines, checkpoints, deletion."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import stepset
from stepset.backends.base import ClusterOptions
from stepset.cli.output.schema import output_schema
from stepset.errors import BadInputError
from stepset.rendering import make_request, render
from stepset.run_status import Phase
from tests.cluster.many import BRIEF, shared
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
    assert f"ships 1 file of {len(SCRIPT)} bytes: train.py" in first["notes"]
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
    assert any(re.match(r"resuming from /.*/step-0, written .*\d\d:\d\d", note) for note in again["notes"])
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
    assert until(lambda: out(runs.cli("list", "-o", "name")).split() == [fresh["name"]])
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
        assert follower.wait(60) == 3
        assert "line" not in follower.stdout.read()
        shown, _ = watcher.communicate(timeout=60)
    assert shown.splitlines()[0].startswith(f"{name}: ")


@pytest.mark.parametrize("agent", [True, False])
def test_the_status_of_a_run_that_no_process_follows_contains_its_progress(runs: Runs, agent: bool) -> None:
    script = """
import json, time
print(json.dumps({"stepset": {"step": 1, "progress": 0.5, "metrics": {"loss": 0.25}}}), flush=True)
print(json.dumps({"stepset": {"step": 2}}), flush=True)
print("begins", flush=True)
time.sleep(600)
"""
    job = runs.job_file(script, pod_template=BRIEF, agent=agent)
    name = out(runs.cli("run", job, "--detach")).strip()
    assert until(lambda: "begins" in runs.cli("logs", name).stdout)
    found = json.loads(out(runs.cli("status", name, "-o", "json")))
    assert found["progress"] == {"step": 2, "progress": 0.5, "metrics": {"loss": 0.25}}
    assert "50 %, step 2, loss=0.25" in out(runs.cli("status", name))
    (listed,) = json.loads(out(runs.cli("list", "-o", "json")))["items"]
    assert (listed["name"], listed["progress"]) == (name, None)


@pytest.mark.parametrize("what", ["jobset", "namespace"])
def test_a_followed_log_ends_with_an_error_if_the_run_or_its_namespace_is_deleted(runs: Runs, what: str) -> None:
    job = runs.job_file("import time\nprint('begins', flush=True)\ntime.sleep(600)\n", pod_template=BRIEF)
    name = out(runs.cli("run", job, "--detach")).strip()
    with runs.program("logs", name, "-f") as follower:
        assert follower.stdout
        assert follower.stdout.readline() == "[rank 0] begins\n"
        target = (what, name, "-n", runs.namespace) if what == "jobset" else (what, runs.namespace)
        runs.cluster.kubectl("delete", *target, "--wait=false")
        shown, errors = follower.communicate(timeout=120)
    assert (follower.returncode, shown) == (3, "")
    cancelled = rf"run {name} was cancelled after \S+( s)?: its JobSet was deleted; its pods had \d+ s to end\."
    # The namespace's deletion deletes the pods first, so the run may fail before its JobSet is deleted.
    failed = (
        rf"run {name} failed after .*: (rank 0 \(pod {name}-\S+ on \S+\) was ended from outside: its pod was deleted"
        rf"|the run was stopped: its namespace {runs.namespace} is being deleted\.)"
    )
    assert re.fullmatch(f"stepset: ({cancelled if what == 'jobset' else f'{cancelled}|{failed}'})\n", errors), errors


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


def test_the_name_of_a_run_is_chosen_once_for_all_targets(runs: Runs) -> None:
    job = runs.job_file("pass")
    assert out(runs.cli("run", job, "--run-name", "digits-7", "--detach")) == "digits-7\n"
    before = [each["metadata"]["uid"] for each in runs.get("configmaps")["items"]]
    for target in ("jobset", "job"):
        backend = ClusterOptions(str(runs.cluster.kubeconfig), namespace=runs.namespace, target=target)
        with pytest.raises(BadInputError) as raised:
            stepset.submit(runs.job("pass"), "kubernetes", run_name="digits-7", cluster=backend)
        assert str(raised.value) == (
            "the run's name: run 'digits-7' exists already; choose another name, or delete that run first"
        )
    assert [each["metadata"]["uid"] for each in runs.get("configmaps")["items"]] == before
    refused = runs.cli("run", job, "--run-name", "digits-7", "--detach")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "stepset: the run's name: run 'digits-7' exists already" in refused.stderr
    invalid = runs.cli("run", job, "--run-name", "7", "--detach")
    assert (invalid.returncode, "the run's name: '7' is not a DNS-1035 label" in invalid.stderr) == (2, True)


def test_the_logs_of_deleted_pods_are_a_note(runs: Runs) -> None:
    """A pod is evicted, as by the drain of its node, so that all pods are replaced. Then a pod is deleted."""
    small = {"requests": {"cpu": "10m"}}
    waits = "import time; print('here', flush=True); time.sleep(600)"
    handle, listener = runs.start(waits, num_nodes=2, resources_per_node=small)
    listener.wait_for_line("here", count=2)
    done = runs.cli("logs", "run")
    assert (done.returncode, done.stderr) == (0, "")
    former = [pod["metadata"]["name"] for pod in runs.pods()]
    runs.evict(former[1])
    listener.wait_for_line("here", count=4)
    done = runs.cli("logs", "run")
    (note,) = done.stderr.splitlines()
    begin = "stepset: note: the logs of 2 pods cannot be read, because the pods were deleted: "
    assert (done.returncode, note.startswith(f"{begin}{', '.join(sorted(former))}")) == (0, True), note
    assert f"pod {former[1]}" in note and "evict" in note

    deleted = runs.pods()[1]["metadata"]["name"]
    runs.cluster.kubectl("delete", "pod", deleted, "-n", runs.namespace)
    assert handle.wait().phase is Phase.FAILED
    runs.cluster.wait("the deletion", lambda: deleted not in [pod["metadata"]["name"] for pod in runs.pods()])
    done = runs.cli("logs", "run", "--ranks", "1", "--tail", "5")
    begin = (
        f"stepset: note: the log of pod {deleted} cannot be read, because the pod was deleted; rank 1 (pod {deleted}"
    )
    assert (done.returncode, done.stdout) == (0, "") and done.stderr.startswith(begin), done.stderr


@pytest.mark.parametrize("runs", ["jobset", "job"], indirect=True)
def test_the_objects_of_an_applied_run_are_deleted_together_with_the_run(runs: Runs) -> None:
    """`kubectl apply` makes no object the owner of the others."""
    given = runs.request("print('done')")
    manifests = render(make_request(given.job, given.sources, run="applied", namespace=runs.namespace), runs.target)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    runs.cluster.kubectl("apply", "--server-side", "-f", "-", text=text)
    assert runs.cli("wait", "applied").returncode == 0
    deleted = runs.cli("delete", "applied")
    assert (deleted.returncode, deleted.stdout) == (0, "applied\n"), deleted.stderr
    runs.wait_nothing_left()
