"""Each iteration of a task in a loop is a training of its own (Airflow 3.4).

conftest.py ignores this file with Airflow 3.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import EXAMPLES, DagRun, run_again

pytestmark = [pytest.mark.airflow, pytest.mark.local]

IMPORTS = "from airflow.sdk import task_group"
LOSSES = """
    import json, os, sys
    iteration = int(sys.argv[1])
    if iteration == 1 and os.environ["STEPSET_ATTEMPT"] == "0" and "fail" in sys.argv:
        sys.exit("the second iteration fails once")
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"loss": 1.0 / (iteration + 1), "attempt": os.environ["STEPSET_ATTEMPT"], "args": sys.argv[1:]}, file)
"""
"""Its result has a lower loss in each iteration: 1.0, 0.5, 0.33."""


def loop(more: str = "", body: str = "", until: str = "loop.result['loss'] < 0.4") -> str:
    """Source text of a loop that trains until the condition is met, at most four times."""
    operator = f"""DistributedTrainOperator(
            task_id="train", backend="local", framework="plain", script="train.py", retry_delay=0.1,
            {more or 'args=["{{ loop.index }}"]'})"""
    return f"""
    def good(*, loop):
        return {until}

    @task_group
    def attempts():
        {body or operator}

    attempts.loop(max_iterations=4, until=good)
    """


def names(home: Path) -> list[str]:
    """The names of the runs, the oldest first."""
    folders = list((home / "runs").iterdir())
    return [each.name for each in sorted(folders, key=lambda each: each.stat().st_ctime)]


def results(run: DagRun) -> list[dict[str, Any]]:
    """The result of each iteration."""
    iterations = sorted(name for name in run.tasks if name.startswith("attempts.train["))
    return [xcom_of(run.tasks[name]) for name in iterations]


def xcom_of(ti: Any, key: str = "return_value") -> Any:
    """An XCom of a task instance, which `xcom_pull` would resolve to another iteration."""
    from airflow.models.xcom import XComModelV2
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(XComModelV2.value).where(XComModelV2.task_instance_id == ti.id, XComModelV2.key == key)
        return session.scalar(query)


def test_a_loop_trains_once_in_each_iteration_until_its_condition_is_met(
    write_dag: WriteDag, run_dag: RunDag, stepset_home: Path
) -> None:
    run = run_dag(write_dag(loop(), LOSSES, IMPORTS))
    assert run.state == "success", run.explained()
    assert [result["args"] for result in results(run)] == [["0"], ["1"], ["2"]]
    found = names(stepset_home)
    assert len(found) == 3
    assert [name.rpartition("-")[2] for name in found] == ["1", "1", "1"], "no run is another try or a second run"
    assert len({name.split("-")[-2] for name in found}) == 3


def test_a_retry_in_an_iteration_is_a_restart_of_that_iteration(
    write_dag: WriteDag, run_dag: RunDag, stepset_home: Path
) -> None:
    run = run_dag(write_dag(loop('retries=1, args=["{{ loop.index }}", "fail"]'), LOSSES, IMPORTS))
    assert run.state == "success", run.explained()
    assert [result["attempt"] for result in results(run)] == ["0", "1", "0"]
    tries = [name.rpartition("-")[2] for name in names(stepset_home)]
    assert tries == ["1", "1", "2", "1"]


def test_an_iteration_that_is_executed_again_after_a_clear_trains_from_the_beginning(
    write_dag: WriteDag, run_dag: RunDag, stepset_home: Path
) -> None:
    path = write_dag(loop(until="loop.index == 1"), LOSSES, IMPORTS)
    before = run_dag(path)
    assert before.state == "success", before.explained()
    first = {"attempts.train[0]": before.tasks["attempts.train[0]"]}
    run_again(path, DagRun(before.state, first, [], []), clear=True)
    found = names(stepset_home)
    assert len(found) == 3
    assert found[2].rpartition("-")[0] == found[0].rpartition("-")[0]
    assert found[2].endswith("-2")


def test_a_triggerer_learns_that_an_iteration_was_cleared_or_replaced(write_dag: WriteDag, run_dag: RunDag) -> None:
    from airflow.models.taskinstance import clear_loop_task_instances
    from airflow.utils.session import create_session

    run = run_dag(write_dag(loop(), LOSSES, IMPORTS))
    tis = [run.tasks[f"attempts.train[{index}]"] for index in range(3)]
    assert [may_read_xcoms(ti) for ti in tis] == [True, True, True]
    with create_session() as session:
        clear_loop_task_instances([session.merge(tis[1])], session=session)
    assert [may_read_xcoms(ti) for ti in tis] == [True, False, False]


def may_read_xcoms(ti: Any) -> bool:
    """Whether Airflow lets a task instance's trigger read XComs; a triggerer sends its requests in this way."""
    from airflow.api_fastapi.execution_api.in_process import TRIGGER_TI_ID_HEADER, InProcessExecutionAPI
    from airflow.sdk.api.client import Client, ServerResponseError

    client = Client(base_url=None, token="", dry_run=True, transport=InProcessExecutionAPI(triggerer_id=1).transport)
    client.base_url = "http://in-process.invalid./"
    client.headers[TRIGGER_TI_ID_HEADER] = str(ti.id)
    try:
        client.xcoms.get(ti.dag_id, ti.run_id, ti.task_id, "return_value", -1)
    except ServerResponseError as error:
        assert error.response.status_code == 403, error
        return False
    return True


def test_the_result_of_the_previous_iteration_is_an_argument_of_the_next(write_dag: WriteDag, run_dag: RunDag) -> None:
    more = "args=['{{ loop.index }}', '{{ loop.previous.loss if loop.previous else \"\" }}']"
    run = run_dag(write_dag(loop(more), LOSSES, IMPORTS))
    assert [result["args"] for result in results(run)] == [["0", ""], ["1", "1.0"], ["2", "0.5"]]


def test_a_mapped_task_trains_once_for_each_value_in_each_iteration(
    write_dag: WriteDag, run_dag: RunDag, stepset_home: Path
) -> None:
    body = """DistributedTrainOperator.partial(
            task_id="train", backend="local", framework="plain", script="train.py",
        ).expand(args=[["{{ loop.index }}", rate] for rate in ("0.1", "0.2")])"""
    run = run_dag(write_dag(loop(body=body, until="loop.index == 1"), LOSSES, IMPORTS))
    assert run.state == "success", run.explained()
    assert len(set(names(stepset_home))) == 4
    assert all(name.endswith("-1") for name in names(stepset_home))


def test_the_page_of_each_iteration_shows_its_own_training(
    write_dag: WriteDag, run_dag: RunDag, stepset_home: Path
) -> None:
    from airflow.utils.session import create_session

    from stepset_airflow.airflow_internals import Region, region_of
    from stepset_airflow.page.queries import recent_runs, run_page
    from stepset_airflow.page.run_selection import RunSelection

    path = write_dag(loop('retries=1, args=["{{ loop.index }}", "fail"]'), LOSSES, IMPORTS)
    run = run_dag(path)
    first = run.tasks["attempts.train[0]"]
    key = (first.dag_id, first.run_id, first.task_id, -1)
    region = region_of(first)
    assert region is not None
    with create_session() as session:
        pages = [run_page(session, *key, Region(region.id, index)) for index in range(3)]
        by_index, latest = run_page(session, *key, Region("", 1)), run_page(session, *key)
        missing = run_page(session, *key, Region(region.id, 7))
        rows = recent_runs(session, [first.dag_id], RunSelection())["runs"]
    listed = [row for row in rows if row["task"]["run_id"] == first.run_id]
    shown = [page["training"]["run"] for page in pages if page and page["training"]]
    runs = names(stepset_home)
    assert shown == [runs[0], runs[2], runs[3]]
    assert [len(page["tries"]) for page in pages if page] == [0, 1, 0]
    assert [page["task"]["region_index"] for page in pages if page] == [0, 1, 2]
    assert (by_index, latest, missing) == (pages[1], pages[2], None)
    assert sorted(row["training"]["run"] for row in listed) == sorted(shown)


def test_the_link_of_an_iteration_names_its_region(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag(loop(), LOSSES, IMPORTS))
    found = [xcom_of(run.tasks[f"attempts.train[{index}]"], "_link_TrainingLink") for index in range(3)]
    assert [url.rpartition("region_index=")[2] for url in found] == ["0", "1", "2"]
    assert all("/tasks/attempts.train/plugin/stepset-training?region_id=" in url for url in found)


def test_the_example_trains_on_until_the_accuracy_suffices(
    run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_DIGITS_HOME", str(tmp_path / "digits"))
    run = run_dag(EXAMPLES / "digits_until_good.py", "until_good", {"epochs": 1, "accuracy": 0.93})
    assert run.state == "success", run.explained()
    found = results(run)
    accuracies = [result["accuracy"] for result in found]
    assert len(found) > 1
    assert [each >= 0.93 for each in accuracies] == [False] * (len(found) - 1) + [True]
    assert len({result["checkpoint"] for result in found}) == len(found)
    assert [line for line in run.lines if "warm start" in line], "later iterations continue with the weights"
    assert run.xcom("report") == f"{len(found)} iterations: " + ", ".join(f"{each:.1%}" for each in accuracies)
