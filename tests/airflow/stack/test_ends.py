"""Tasks that succeed and fail in a real Airflow, in a worker and in the triggerer, mapped and not."""

from __future__ import annotations

import pytest

from stepset_airflow.triggerer.log_lease import MIN_DEFERRAL
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.training import lines_of_ranks
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

TRAINS = """
import json, os
for number in range(100):
    print("line", number, flush=True)
if os.environ["RANK"] == "0":
    result = {"world": int(os.environ["WORLD_SIZE"]), "given": os.environ["GIVEN"]}
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps(result))
"""
FAILS = "import sys; print('hello', flush=True); int('no number')"
LINES = [f"[rank 0] line {number}" for number in range(100)]


def test_successful_runs_end_their_tasks_in_a_worker_in_the_triggerer_and_mapped(stage: Stage) -> None:
    given = {"on_finish_action": "delete"}
    sync = stage.train(task_id="sync", outlets=[], env={"GIVEN": "sync"}, **given)
    sync = sync.replace("outlets=[]", "outlets=[Asset('sync')]")
    deferred = stage.train(task_id="deferred", outlets=[], env={"GIVEN": "deferred"}, deferrable=True, **given)
    deferred = deferred.replace("outlets=[]", "outlets=[Asset('deferred')]")
    each = stage.train(task_id="each", deferrable=True, **given)
    each = each.replace("DistributedTrainOperator(", "DistributedTrainOperator.partial(")
    each += ".expand(env=[{'GIVEN': 'a'}, {'GIVEN': 'b'}])"
    run = stage.run(f"{sync}\n{deferred}\n{each}", TRAINS)
    tasks = [run.task("sync"), run.task("deferred"), run.task("each", 0), run.task("each", 1)]
    for task, name in zip(tasks, ("sync", "deferred", "a", "b"), strict=True):
        assert task.wait()["state"] == "success", task.explained()
        assert task.result() == {"world": 1, "given": name}
        log = task.log()
        assert lines_of_ranks(log) == LINES
        assert not [line for line in log if "cancelled" in line], "the end of a trigger was taken for a user's action"
        if name != "sync":
            assert task.seconds_between("starting", "Trigger fired event") >= MIN_DEFERRAL
        (end,) = [line for line in log if line.startswith("run ") and " succeeded in " in line]
        ran = end.split()[1]
        if task.index < 0:
            assert task.events() == [{"run": ran, "world": 1, "given": name}]
    assert len(at_most(4, stage.jobsets.names())) == 4
    stage.nothing_left()


def test_failed_runs_fail_their_tasks_with_the_diagnosis_in_a_worker_and_in_the_triggerer(stage: Stage) -> None:
    ways = {"sync": False, "deferred": True}
    given = {"exit_code_policy": {"UserError": "fail"}, "on_finish_action": "delete", "retries": 2}
    texts = [stage.train(task_id=way, deferrable=deferrable, **given) for way, deferrable in ways.items()]
    run = stage.run("\n".join(texts), FAILS)
    for way in ways:
        task = run.task(way)
        ended = task.wait()
        assert (ended["state"], ended["try_number"]) == ("failed", 1), task.explained()
        log = "\n".join(task.log())
        assert "UserError: rank 0" in log
        assert "ValueError: invalid literal for int() with base 10: 'no number'" in log
        assert task.log().count("[rank 0] hello") == 1
    assert len(at_most(2, stage.jobsets.names())) == 2
    stage.nothing_left()
