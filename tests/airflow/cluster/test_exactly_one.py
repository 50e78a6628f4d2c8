"""Exactly one training, whatever dies: workers killed at each request in turn."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.airflow.cluster.conftest import Tasks

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]


def test_a_worker_killed_at_any_request_of_the_submission_leaves_one_run_that_the_next_one_completes(
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
        maps = tasks.runs.get("configmaps", "-l", f"stepset.dev/run={about['name']}")["items"]
        assert len(maps) == 2
        assert {owner["uid"] for each in maps for owner in each["metadata"]["ownerReferences"]} == {about["uid"]}, place
    # Besides those, the one of the process that came to its end.
    assert len(workloads) == len(places) + 1
