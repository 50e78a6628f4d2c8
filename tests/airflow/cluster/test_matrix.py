"""How a task ends on a real cluster.

Each test runs with a synchronous and with a deferred wait, because a user must observe the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from stepset.run_status import FailureKind, Phase
from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import DagRun, asset_event_extras, rows_of_every_table, run_again
from tests.airflow.stack.created import created
from tests.violations import at_most
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

WAYS = pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])

WRITES_RESULT = """
    import json, os, sys
    for number in range(200):
        print("line", number, flush=True)
    print(json.dumps({"stepset": {"step": 7, "progress": 0.7, "metrics": {"loss": 0.25}}}), flush=True)
    if os.environ["RANK"] == "0":
        open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"world": int(os.environ["WORLD_SIZE"])}))
"""
RANK_1_FAILS = """
    import os, time
    print("hello", flush=True)
    if os.environ["RANK"] == "1":
        int("no number")
    time.sleep(120)
"""
SUCCEEDS_WHEN_TRIED_AGAIN = """
    import json, os, sys
    print("attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
    if os.environ["STEPSET_ATTEMPT"] == "0":
        sys.exit("the first try always fails")
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(os.environ["STEPSET_ATTEMPT"])
"""
SLEEPS = "import time; print('started', flush=True); time.sleep(600)"


OUTLET = "never_made"
"""An asset for which a failed run must create no event."""
FAILS = f"outlets=[Asset({OUTLET!r})]"

JOBSETS = {
    "test_a_retry_starts_a_new_run_from_the_checkpoint": 2,
    "test_a_cleared_task_starts_a_new_run_and_a_task_whose_worker_died_at_the_end_does_not": 2,
}
"""Test -> number of JobSets that it creates, if that is not one."""


@pytest.fixture(autouse=True)
def _check_jobsets_and_pods(tasks: Tasks, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        yield
        number = JOBSETS.get(request.node.function.__name__, 1)
        assert len(at_most(number, made.names())) == number

    def phases() -> list[str]:
        return [pod["status"].get("phase", "") for pod in tasks.runs.pods()]

    assert until(lambda: not {"Pending", "Running"} & set(phases())), phases()


def check_failed(run: DagRun) -> None:
    """Checks that the task failed at its only try, has no result or asset event, and logged no rank's line twice."""
    assert (run.state, run.task_state("train"), run.tries("train")) == ("failed", "failed", 1), run.explained()
    assert run.xcom("train") is None
    assert asset_event_extras(OUTLET) == []
    of_ranks = [line for line in run.lines if line.startswith("[rank ")]
    assert len(of_ranks) == len(set(of_ranks)), of_ranks


@pytest.mark.gate
@WAYS
def test_a_successful_run_ends_its_task_with_its_result(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(num_nodes=2, deferrable=deferrable)
    outlet = f"m_{deferrable}"
    given = text.replace("DistributedTrainOperator(", f"DistributedTrainOperator(outlets=[Asset({outlet!r})], ", 1)
    run = run_dag(write_dag(given, WRITES_RESULT))
    assert run.task_state("train") == "success", run.explained()
    assert run.xcom("train") == {"world": 2}
    for number in range(200):
        assert run.lines.count(f"[rank 0] line {number}") == 1
    assert not [line for line in run.lines if line.startswith("[rank 1]")]
    assert "progress: 70 %, step 7, loss=0.25" in run.lines
    assert sum("ships 1 file of" in line for line in run.lines) == 1
    name = tasks.verdict().name
    (end,) = [line for line in run.lines if line.startswith("run ") and " succeeded" in line]
    assert re.fullmatch(rf"run {re.escape(name)} succeeded in [0-9.mhs ]+", end)
    assert asset_event_extras(outlet)[-1] == {"run": name, "world": 2, "metrics": {"loss": 0.25}}
    for labelled in [*tasks.workloads(), *tasks.runs.pods()]:
        labels = labelled["metadata"]["labels"]
        assert (labels["dag_id"], labels["task_id"], labels["run_id"]) == tuple(
            make_safe_label_value(getattr(run.tasks["train"], each)) for each in ("dag_id", "task_id", "run_id")
        )


@pytest.mark.gate
@WAYS
def test_a_failed_rank_fails_the_task_with_the_diagnosis(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    fields = {"log_ranks": "failed", "exit_code_policy": {"UserError": "fail"}}
    run = run_dag(write_dag(tasks.train(FAILS, num_nodes=2, deferrable=deferrable, **fields), RANK_1_FAILS))
    check_failed(run)
    assert isinstance(run.error, AirflowFailException), run.explained()
    first, *rest = str(run.error).splitlines()
    assert "UserError: rank 1" in first
    assert "ValueError: invalid literal for int() with base 10: 'no number'" in first
    assert any(line.startswith("  last lines    ") for line in rest)
    assert not [line for line in run.lines if line.startswith("[rank")]
    verdict = tasks.verdict()
    assert (verdict.phase, verdict.failure and verdict.failure.rank) == (Phase.FAILED, 1)


@pytest.mark.gate
@WAYS
def test_a_retry_starts_a_new_run_from_the_checkpoint(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(deferrable=deferrable, retries=1, retry_delay=0.1, on_finish_action="delete_succeeded")
    run = run_dag(write_dag(text, SUCCEEDS_WHEN_TRIED_AGAIN))
    assert (run.task_state("train"), run.tries("train")) == ("success", 2), run.explained()
    assert run.xcom("train") == 1
    assert [line for line in run.lines if line.startswith("[rank 0] attempt")] == [
        "[rank 0] attempt 0",
        "[rank 0] attempt 1",
    ]
    assert until(lambda: len(tasks.workloads()) == 1, 60)
    assert tasks.verdict().phase is Phase.FAILED


@WAYS
def test_a_missing_image_fails_the_task_after_the_startup_timeout(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(
        FAILS,
        deferrable=deferrable,
        image="registry.invalid/nothing:1",
        pod_template={"spec": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]}},
        startup_timeout=40,
    )
    run = run_dag(write_dag(text, SLEEPS))
    check_failed(run)
    assert "ImagePull" in str(run.error), run.explained()
    assert "gave up after 40 s" in str(run.error)
    (workload,) = tasks.workloads()
    assert workload["spec"].get("suspend") is True
    assert until(lambda: not tasks.runs.pods(), 120)


@WAYS
def test_a_run_that_is_out_of_memory_fails_the_task(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(
        FAILS,
        deferrable=deferrable,
        resources_per_node={"requests": {"memory": "64Mi", "cpu": "100m"}, "limits": {"memory": "64Mi"}},
    )
    run = run_dag(write_dag(text, "held = []\nwhile True: held.append(bytearray(1 << 20))"))
    check_failed(run)
    assert isinstance(run.error, AirflowException), run.explained()
    assert FailureKind.OUT_OF_MEMORY.value in str(run.error).splitlines()[0]


@WAYS
def test_a_run_without_room_fails_the_task_after_the_startup_timeout(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(
        FAILS, deferrable=deferrable, scheduling={"node_selector": {"example.com/no": "such"}}, startup_timeout=15
    )
    run = run_dag(write_dag(text, SLEEPS))
    check_failed(run)
    first = str(run.error).splitlines()[0]
    assert "Unschedulable" in first, run.explained()
    assert "gave up after 15 s" in first


@WAYS
def test_a_run_that_is_deleted_as_soon_as_it_ends_is_reported_in_full(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    outlet = f"deleted_{deferrable}"
    text = tasks.train(f"outlets=[Asset({outlet!r})]", num_nodes=2, deferrable=deferrable, ttl=1)
    run = run_dag(write_dag(text, WRITES_RESULT))
    assert (run.task_state("train"), run.tries("train")) == ("success", 1), run.explained()
    assert run.xcom("train") == {"world": 2}
    assert [line for line in run.lines if line.startswith("[rank 0] line ")] == [
        f"[rank 0] line {number}" for number in range(200)
    ]
    (extra,) = asset_event_extras(outlet)
    assert (extra["world"], extra["metrics"]) == (2, {"loss": 0.25})
    assert len([line for line in run.lines if line.startswith("run ") and " succeeded in " in line]) == 1
    assert until(lambda: not tasks.workloads(), 60)


@WAYS
def test_a_task_that_exceeds_its_execution_timeout_ends_its_run(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    text = tasks.train(FAILS, deferrable=deferrable, poll_interval=1)
    with_limit = text.replace("(", "(execution_timeout=datetime.timedelta(seconds=25), ", 1)
    run = run_dag(write_dag(with_limit, SLEEPS, imports="import datetime"))
    check_failed(run)
    assert type(run.error).__name__ == "AirflowTaskTimeout", run.explained()
    assert until(lambda: not tasks.workloads(), 90)


@WAYS
def test_a_cleared_task_starts_a_new_run_and_a_task_whose_worker_died_at_the_end_does_not(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    path = write_dag(tasks.train(deferrable=deferrable, retries=3), WRITES_RESULT)
    first = run_dag(path)
    assert first.task_state("train") == "success", first.explained()
    retried = run_again(path, first, clear=False)
    assert retried.task_state("train") == "success", retried.explained()
    assert len(tasks.workloads()) == 1
    cleared = run_again(path, first, clear=True)
    assert cleared.task_state("train") == "success", cleared.explained()
    names = [each["metadata"]["name"] for each in tasks.workloads()]
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]
    assert len({name.rpartition("-")[0] for name in names}) == 1


def test_no_token_is_in_logs_xcoms_or_manifests(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks) -> None:
    run = run_dag(write_dag(tasks.train(deferrable=True), WRITES_RESULT))
    assert run.task_state("train") == "success", run.explained()
    written = "\n".join([*map(repr, run.log), *rows_of_every_table(), json.dumps(tasks.workloads())])
    assert len(tasks.token()) > 100
    assert tasks.verdict().name in written
    assert tasks.token() not in written
