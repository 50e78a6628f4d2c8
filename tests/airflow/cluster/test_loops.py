"""A task in a loop trains once in each iteration, on a real cluster (Airflow 3.4).

Each test runs with a synchronous and with a deferred wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import DagRun, run_again
from tests.airflow.stack.created import Created, created

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

WAYS = pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
IMPORTS = "from airflow.sdk import task_group"
FAILS_ONCE_IN_THE_SECOND_ITERATION = """
    import os, sys
    print("iteration", sys.argv[1], "attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
    if sys.argv[1] == "1" and os.environ["STEPSET_ATTEMPT"] == "0":
        sys.exit("it fails once")
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(sys.argv[1])
"""


def loop(train: str) -> str:
    """Source text of a loop with two iterations."""
    return f"""
    @task_group
    def attempts():
        {train}

    attempts.loop(max_iterations=2)
    """


@pytest.fixture
def jobsets(tasks: Tasks, tmp_path: Path) -> Iterator[Created]:
    """The record of created JobSets."""
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        yield made


def generations(jobsets: Created) -> list[list[str]]:
    """The numbers at the ends of the JobSets' names, for each iteration, in the order of creation."""
    found: dict[str, list[str]] = {}
    for name in jobsets.names():
        run, _, number = name.rpartition("-")
        found.setdefault(run, []).append(number)
    return list(found.values())


@WAYS
def test_each_iteration_has_one_run_for_each_try_and_one_more_after_a_clear(
    tasks: Tasks, write_dag: WriteDag, run_dag: RunDag, jobsets: Created, deferrable: bool
) -> None:
    train = tasks.train("args=['{{ loop.index }}']", deferrable=deferrable, retries=1, retry_delay=0.1, poll_interval=1)
    path = write_dag(loop(train), FAILS_ONCE_IN_THE_SECOND_ITERATION, IMPORTS)
    run = run_dag(path)
    assert run.state == "success", run.explained()
    assert generations(jobsets) == [["1"], ["1", "2"]]
    for line in ("iteration 0 attempt 0", "iteration 1 attempt 0", "iteration 1 attempt 1"):
        assert run.lines.count(f"[rank 0] {line}") == 1, run.explained()
    regions = {each["metadata"]["labels"]["region_index"] for each in tasks.workloads()}
    assert regions == {"0", "1"}

    second = DagRun(run.state, {"attempts.train[1]": run.tasks["attempts.train[1]"]}, [], [])
    reported = run_again(path, second, clear=False)  # its worker died after it had recorded the end
    assert not reported.errors, reported.explained()
    assert generations(jobsets) == [["1"], ["1", "2"]]

    cleared = run_again(path, reported, clear=True)
    assert generations(jobsets) == [["1"], ["1", "2", "3"]]
    assert "[rank 0] iteration 1 attempt 0" in cleared.lines
