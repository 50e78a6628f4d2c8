"""Sensors, retry policies, a site's pod policy and silent ranks on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.run_status import Phase
from stepset_airflow.exceptions import TrainingTaskError
from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.policy import pods_changed_by
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

SLEEPS = "import time; print('started', flush=True); time.sleep(600)"


@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_a_sensor_waits_for_a_run_of_another_client(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    script = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('{\"loss\": 0.5}')"
    tasks.runs.backend().make(tasks.runs.request(script, run="theirs"))
    imports = "from stepset_airflow import DistributedTrainSensor"
    sensor = f'DistributedTrainSensor(task_id="wait", run_name="theirs", deferrable={deferrable}, poke_interval=1)'
    run = run_dag(write_dag(sensor, imports=imports))
    assert run.task_state("wait") == "success", run.explained()
    assert run.xcom("wait") == {"loss": 0.5}
    (workload,) = tasks.workloads()
    assert workload["metadata"]["name"] == "theirs"


def test_a_sensor_fails_with_the_run_s_diagnosis(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks) -> None:
    tasks.runs.backend().make(tasks.runs.request("raise ValueError('no digits')", run="theirs"))
    imports = "from stepset_airflow import DistributedTrainSensor"
    run = run_dag(
        write_dag('DistributedTrainSensor(task_id="wait", run_name="theirs", deferrable=True)', imports=imports)
    )
    assert isinstance(run.error, TrainingTaskError), run.explained()
    assert (run.error.kind, run.error.exit_code) == ("UserError", 1)
    assert "ValueError: no digits" in str(run.error)


def test_the_retry_policy_does_not_retry_an_error_of_the_training_code(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks
) -> None:
    imports = "from stepset_airflow import TrainingRetryPolicy"
    text = tasks.train(retries=3, deferrable=True)
    with_policy = text.replace("(", "(retry_policy=TrainingRetryPolicy(), ", 1)
    run = run_dag(write_dag(with_policy, "raise ValueError('no digits')", imports=imports))
    assert (run.task_state("train"), run.tries("train")) == ("failed", 1), run.explained()
    assert len(at_most(1, [each["metadata"]["name"] for each in tasks.workloads()])) == 1


def test_a_task_that_does_not_wait_returns_the_name_of_its_run(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks
) -> None:
    run = run_dag(write_dag(tasks.train(wait_for_completion=False), SLEEPS))
    assert run.task_state("train") == "success", run.explained()
    (workload,) = tasks.workloads()
    about = workload["metadata"]
    assert run.xcom("train") == {"run": about["name"], "namespace": tasks.runs.namespace, "uid": about["uid"]}
    assert not tasks.runs.backend().read(workload).phase.final
    assert tasks.runs.backend().read(workload).phase is not Phase.LOST


WRITES_SITE = "import json, os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps(os.environ['SITE']))"


def test_a_site_s_pod_policy_applies_to_the_pods_of_a_run(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks) -> None:
    def change(pod: Any) -> None:
        from kubernetes.client import V1EnvVar

        pod.metadata.labels["site.example/team"] = "ml"
        pod.spec.containers[0].env.append(V1EnvVar("SITE", "here"))

    with pods_changed_by(change):
        run = run_dag(write_dag(tasks.train(num_nodes=2), WRITES_SITE))
    assert run.xcom("train") == "here", run.explained()
    assert [pod["metadata"]["labels"]["site.example/team"] for pod in tasks.runs.pods()] == ["ml", "ml"]


@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_silent_ranks_are_reported_once(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool) -> None:
    quiet = "import time; print('started', flush=True); time.sleep(12); print('done')"
    run = run_dag(write_dag(tasks.train(deferrable=deferrable, quiet_after=3, poll_interval=1), quiet))
    assert run.task_state("train") == "success", run.explained()
    reports = [index for index, line in enumerate(run.lines) if line.startswith("no rank has printed a line for 3 s; ")]
    assert len(reports) == 1, run.explained()
    # A rank that starts slowly is silent before its first line, too.
    assert max(reports[0], run.lines.index("[rank 0] started")) < run.lines.index("[rank 0] done")
