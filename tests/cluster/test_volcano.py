"""Runs of the target `volcano` with Volcano's own controller, scheduler and webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset.cli import main
from stepset.rendering import render
from stepset.run_status import FailureKind, Phase
from stepset.targets.pods.strategic_merge import merge
from stepset.watch.advice import ADVICE
from tests.cluster.many import BRIEF, MEET, PAIR, RANK, RESULT, SLEEP, Many, many
from tests.cluster.runs import VOLCANO, Runs, runs_in
from tests.cluster.stage import Stage
from tests.cluster.testbed.handle import Cluster
from tests.targets.making import request
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

ON_VOLCANO = pytest.mark.parametrize("runs", [VOLCANO], indirect=True)
ENVIRONMENT = "print(json.dumps({**os.environ}), flush=True)\n"
JOBS: dict[str, dict[str, Any]] = {
    "success": {**PAIR, "text": MEET + ENVIRONMENT + "if rank == 0: " + RESULT.format("{'loss': 0.5}")},
    "error": {
        **PAIR,
        "text": RANK + "if rank == 1:\n    raise ValueError('batch 7 is empty')\n" + SLEEP,
        "pod_template": BRIEF,
    },
    "restarts": {
        **PAIR,
        "text": MEET + "print('attempt', attempt, flush=True)\nif attempt == 0: sys.exit(7)\n",
        "pod_template": BRIEF,
        "restart": {"max_restarts": 1},
    },
    "no-restart-left": {
        **PAIR,
        "text": MEET + "print('attempt', attempt, flush=True)\nsys.exit(7)\n",
        "pod_template": BRIEF,
        "restart": {"max_restarts": 1},
    },
    "deadline": {**PAIR, "text": RANK + SLEEP, "deadline": "8s", "pod_template": BRIEF},
    "roles": {
        **PAIR,
        "text": MEET,
        "roles": [{"name": "monitor", "command": ["sleep", "600"]}],
    },
}


@pytest.fixture(scope="module")
def ends(cluster: Cluster, volcano: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs of the table, started together."""
    with many(cluster, tmp_path_factory.mktemp("runs"), JOBS, target="volcano") as found:
        yield found


def test_the_ranks_meet_and_the_result_is_rank_0s(ends: Many) -> None:
    status = ends.end("success")
    assert (status.phase, status.result) == (Phase.SUCCEEDED, {"loss": 0.5})
    assert [(row.source, row.pod, row.state) for row in status.ranks] == [
        ("rank 0", "success-node-0", "Succeeded"),
        ("rank 1", "success-node-1", "Succeeded"),
    ]


def test_the_ranks_see_the_environment_that_explain_shows(
    ends: Many, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ends.end("success")
    job = ends.runs.job(**{key: value for key, value in JOBS["success"].items() if key != "text"}, command=["x"])
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job.to_dict()))
    assert main(["explain", str(tmp_path / "job.yaml"), "-o", "json"]) == 0
    rows = json.loads(capfd.readouterr().out)["groups"][0]["env"]
    # `explain` names the run after its job, and shows the addresses of a JobSet.
    names = {"STEPSET_RUN": "success", "MASTER_ADDR": "success-node-0.success"}
    for rank in (0, 1):
        found = json.loads(next(text for text in ends.listener("success").texts(f"rank {rank}") if text[0] == "{"))
        sources = {"<pod index>": str(rank), "<attempt>": "0"}
        expected = {row["variable"]: sources.get(row["value"], row["value"]) for row in rows} | names
        assert {name: found.get(name) for name in expected} == expected


def test_a_failing_rank_ends_the_run_and_is_named(ends: Many) -> None:
    status, failure = ends.end("error"), ends.failure("error")
    assert (status.phase, failure.kind, failure.rank) == (Phase.FAILED, FailureKind.USER_ERROR, 1)
    assert (failure.exit_code, failure.error) == (1, "ValueError: batch 7 is empty")
    assert failure.pod == "error-node-1"
    assert failure.advice == ADVICE[FailureKind.USER_ERROR]
    assert {row.source: row.state for row in status.ranks}["rank 1"] == "Failed"


def test_a_restart_begins_a_new_attempt_of_both_ranks(ends: Many) -> None:
    status = ends.end("restarts")
    assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
    assert "exited with code 7" in status.notes[0]
    for rank in (0, 1):
        assert ends.listener("restarts").texts(f"rank {rank}")[-1] == "attempt 1"


def test_a_run_without_a_restart_left_fails_with_the_error_of_its_last_attempt(ends: Many) -> None:
    status, failure = ends.end("no-restart-left"), ends.failure("no-restart-left")
    assert (status.phase, status.attempt) == (Phase.FAILED, 1)
    assert (failure.kind, failure.exit_code) == (FailureKind.USER_ERROR, 7)


def test_a_deadline_ends_the_run(ends: Many) -> None:
    failure = ends.failure("deadline")
    assert failure.kind is FailureKind.DEADLINE_EXCEEDED
    assert failure.message.startswith("the run took longer than its deadline of 8s")


def test_a_run_succeeds_while_a_role_still_runs(ends: Many) -> None:
    assert ends.end("roles").phase is Phase.SUCCEEDED
    query = ("--field-selector", "reason=Started", "-o", "jsonpath={.items[*].involvedObject.name}")
    started = ends.runs.cluster.kubectl("get", "events", "-n", ends.runs.namespace, *query)
    assert f"{ends.handle('roles').name}-monitor-0" in started.split()
    assert until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in ends.runs.pods("monitor")))


def test_volcano_would_start_the_gang_again_after_its_deadline(cluster: Cluster, volcano: None, namespace: str) -> None:
    """The reason why stepset refuses a deadline with restarts (tests/odd_jobs/test_volcano_deadline.py)."""
    late = request(command=["sleep", "600"], deadline="2s", run="late", namespace=namespace)
    (*others, job) = render(late, "volcano")
    job["spec"]["policies"][0]["action"] = "RestartJob"
    job["spec"]["maxRetry"] = 3
    template = job["spec"]["tasks"][0]["template"]
    template["spec"] = merge(template, cluster.pod_template())["spec"]
    template["spec"]["terminationGracePeriodSeconds"] = 1
    for each in (*others, job):
        cluster.kubectl("create", "-n", namespace, "-f", "-", text=json.dumps(each))

    def restarts() -> int:
        found = cluster.get("jobs.batch.volcano.sh/late", namespace)
        return int(found.get("status", {}).get("retryCount", 0))

    cluster.wait("a restart", lambda: restarts() > 0)


@ON_VOLCANO
def test_a_cancelled_run_leaves_nothing(runs: Runs, stage: Stage) -> None:
    handle, listener = runs.start(**stage.job("count_until('end')"))
    listener.wait_for_line("line", count=4)
    done = runs.cli("cancel", "run")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("stepset: run run is stopping")
    assert done.stderr.splitlines()[1].startswith("stepset: run run was cancelled after ")
    failure = handle.wait().failure
    assert failure is not None and failure.kind is FailureKind.CANCELLED
    runs.wait_nothing_left()


@ON_VOLCANO
def test_a_run_that_is_deleted_by_hand_is_cancelled(runs: Runs, stage: Stage) -> None:
    handle, listener = runs.start(**stage.job("count_until('end')"))
    listener.wait_for_line("line", count=4)
    runs.cluster.kubectl("delete", "jobs.batch.volcano.sh/run", "-n", runs.namespace, "--wait=false")
    failure = handle.wait().failure
    assert failure is not None and failure.kind is FailureKind.CANCELLED
    runs.wait_nothing_left()


@ON_VOLCANO
def test_a_gang_that_does_not_fit_waits_in_volcanos_queue(runs: Runs) -> None:
    handle, listener = runs.start("print('never')", **PAIR, resources_per_node={"cpu": 1000})
    listener.wait_for(Phase.PENDING, "Queued")
    assert runs.pods() == []
    handle.cancel()
    failure = handle.wait().failure
    assert failure is not None and failure.kind is FailureKind.CANCELLED
    runs.wait_nothing_left()


def test_mpis_launcher_starts_after_its_nodes(cluster: Cluster, volcano: None, namespace: str, tmp_path: Path) -> None:
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'])"
    with runs_in(cluster, namespace, tmp_path, "volcano") as runs:
        status, listener = runs.run(text, framework="mpi", num_nodes=2, procs_per_node=1, env=as_root)
    assert status.phase is Phase.SUCCEEDED, status
    assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["0"], ["1"]]


def test_volcano_schedules_the_gang_of_a_jobset(
    cluster: Cluster, volcano: None, namespace: str, tmp_path: Path
) -> None:
    gang = {**PAIR, "scheduling": {"gang": "volcano"}}
    with runs_in(cluster, namespace, tmp_path, "jobset", gang="volcano") as runs:
        status, _ = runs.run(MEET, **gang)
        assert status.phase is Phase.SUCCEEDED, status
        handle, listener = runs.start("print('never')", **gang, run="large", resources_per_node={"cpu": 1000})
        waiting = listener.wait_for(Phase.PENDING, "Unschedulable")
        assert waiting.trouble is not None and "2 minAvailable" in waiting.trouble.message
        handle.cancel()
        handle.wait()
