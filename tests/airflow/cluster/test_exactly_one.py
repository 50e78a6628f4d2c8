"""Exactly one training, although workers are killed at each request of a submission and at each change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.stack.created import created
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]


def test_a_worker_killed_at_any_request_of_the_submission_leaves_one_run_that_the_next_worker_completes(
    tasks: Tasks,
) -> None:
    job = tasks.runs.job("print('trained')", agent=True, scheduling={"node_selector": {"example.com/no": "such"}})
    words = [str(tasks.runs.kubeconfig), tasks.runs.namespace, json.dumps(job.to_dict())]
    program = [sys.executable, "-m", "tests.airflow.cluster.dying", *words]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    *places, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["requests"] >= 4
    assert len(places) == 2 * last["requests"]
    workloads = {each["metadata"]["uid"]: each["metadata"] for each in tasks.workloads()}
    for place in places:
        about = workloads[place["uid"]]
        assert about["name"] == place["name"]
        assert about["name"].endswith("-1"), place
        assert "stepset.dev/submission" not in about["labels"], place
        maps = tasks.runs.get("configmaps", f"stepset.dev/run={about['name']}")["items"]
        assert len(maps) == 2
        assert {owner["uid"] for each in maps for owner in each["metadata"]["ownerReferences"]} == {about["uid"]}, place
    # One more: that of the process that was not killed.
    assert len(at_most(len(places) + 1, workloads)) == len(places) + 1


PRINTS_LINES = """
import json, os, time
for number in range(8):
    print("line", number, flush=True)
    time.sleep(0.05)
"""
LINES = [f"line {number}" for number in range(8)]
WRITES = "open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({'loss': 0.5}))"


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("way", ["sync", "deferred"])
def test_a_worker_killed_at_any_change_leaves_one_run_and_the_next_worker_ends_the_task_as_if_there_was_no_kill(
    tasks: Tasks, tmp_path: Path, way: str
) -> None:
    whole, places, names = killed_at_each_change(tasks, tmp_path, PRINTS_LINES + WRITES, way, "at first")
    assert {"save", "POST", "PATCH", "DELETE"} == {each["changed"][-1].split()[0] for each in places}
    assert len(places) >= 14
    for each in [whole, *places]:
        assert each["killed"] is (each is not whole)
        assert each["failed"] == []
        each_line_once(each)
        assert each["result"] == {"loss": 0.5}, each
        assert each["event"]["run"] in names
    assert all(name.endswith("-1") for name in names), names
    assert len(at_most(len(places) + 1, names)) == len(places) + 1
    tasks.runs.wait_nothing_left()


FAILS_ONCE = f"{PRINTS_LINES}if os.environ['STEPSET_ATTEMPT'] == '0': raise SystemExit(3)\n{WRITES}"


@pytest.mark.usefixtures("airflow_db")
def test_a_worker_killed_while_it_processes_a_failure_leaves_nothing_of_the_failed_run_to_the_next_try(
    tasks: Tasks, tmp_path: Path
) -> None:
    whole, places, names = killed_at_each_change(tasks, tmp_path, FAILS_ONCE, "sync", "when made")
    saved = [each for each in places if each["changed"][-1].startswith(("save", "DELETE")) and not each["failed"]]
    assert saved, places  # killed between saving the end and deleting the run: the next try trains at once
    for each in [whole, *places]:
        assert each["killed"] is (each is not whole)
        assert each["result"] == {"loss": 0.5}, each
        assert each["event"]["run"] in names
        assert each["event"]["run"].endswith("-2")
        each_line_once(each)
        assert each["lines"][-1] == LINES
        for error in each["failed"]:
            expected = (
                r"run \S+-1 failed after [0-9.mhs ]+: UserError: rank 0 .* exited with code 3; its last line: line 7$"
            )
            assert re.match(expected, error.splitlines()[0])
    at_most(2 * len(places) + 2, names)
    assert sorted(name[-2:] for name in names) == sorted(["-1", "-2"] * (len(places) + 1)), names
    tasks.runs.wait_nothing_left()


def each_line_once(task: dict[str, Any]) -> None:
    """Checks that each of the task's logs has the first of LINES in order, once, and that one log has them all."""
    for lines in task["lines"]:
        assert lines == LINES[: len(lines)]
    assert LINES in task["lines"]


def killed_at_each_change(
    tasks: Tasks, directory: Path, program: str, way: str, since: str
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Returns the task whose worker was not killed, those whose workers were, and the names of all created JobSets."""
    parameters = tasks.parameters(script=None, function=program, on_finish_action="delete", poll_interval=1)
    command = [sys.executable, "-m", "tests.airflow.cluster.dying_to_the_end", json.dumps(parameters), way, since]
    with created(tasks.runs.cluster, tasks.runs.namespace, directory / "jobsets") as made:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ))
        assert done.returncode == 0, done.stderr[-3000:]
        whole, *places = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return whole, places, made.names()
