"""The sensor waits for a run of this machine, and checks its parameters when the DAG file is parsed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import mask_secret
from structlog.testing import capture_logs

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset_airflow import DistributedTrainSensor, TrainingTaskError
from tests.airflow.conftest import RunDag, WriteDag

pytestmark = pytest.mark.airflow

IMPORTS = "from stepset_airflow import DistributedTrainSensor"
WAIT = 'DistributedTrainSensor(task_id="wait", backend="local", run_name="digits-1", poke_interval=0.1, timeout=30'


def start(program: str, name: str = "digits-1") -> None:
    """Runs a job on this machine to its end, as another process does."""
    job = parse_job({"framework": "plain", "name": "digits", "function": program})
    LocalBackend().start(RunRequest(job, read_sources(job, Path()), name=name)).wait()


def problem(error: type[Exception], **parameters: Any) -> str:
    with DAG("nightly", schedule=None), pytest.raises(error) as raised:
        DistributedTrainSensor(task_id="wait", **{"run_name": "digits-1", **parameters})
    return str(raised.value)


@pytest.mark.local
class TestLocalRuns:
    def test_the_result_of_a_run_on_this_machine_is_the_task_s_xcom(self, write_dag: WriteDag, run_dag: RunDag) -> None:
        start("import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('{\"accuracy\": 0.9}')")
        run = run_dag(write_dag(f"{WAIT}, deferrable=True)", imports=IMPORTS))
        assert run.state == "success", run.explained()
        assert run.xcom("wait") == {"accuracy": 0.9}

    def test_a_failed_run_fails_the_task_with_its_diagnosis(self, write_dag: WriteDag, run_dag: RunDag) -> None:
        start("raise ValueError('no digits')")
        run = run_dag(write_dag(f"{WAIT})", imports=IMPORTS))
        assert run.task_state("wait") == "failed"
        assert isinstance(run.error, TrainingTaskError)
        assert run.error.kind == "UserError"
        assert "ValueError: no digits" in str(run.error)

    def test_the_sensor_waits_for_a_run_that_does_not_exist_yet(self, stepset_home: Path) -> None:
        sensor = DistributedTrainSensor(task_id="wait", backend="local", run_name="digits-1")
        assert not sensor.poke({}).is_done  # type: ignore[typeddict-item]  # the context is not used
        start("pass")
        assert sensor.poke({}).is_done  # type: ignore[typeddict-item]

    def test_the_log_states_how_the_run_ended_and_its_result(self, stepset_home: Path) -> None:
        start("import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('{\"accuracy\": 0.9}')")
        sensor = DistributedTrainSensor(task_id="wait", backend="local", run_name="digits-1")
        with capture_logs() as logs:
            sensor.poke({})  # type: ignore[typeddict-item]  # the context is not used
        ended, result = [entry["event"] for entry in logs][-2:]
        assert re.fullmatch(r"run digits-1 succeeded in [\d.]+ s", ended)
        assert result == 'result: {"accuracy": 0.9}'

    def test_the_log_states_that_the_run_has_no_result(self, stepset_home: Path) -> None:
        start("pass")
        for pushes in (True, False):
            sensor = DistributedTrainSensor(
                task_id=f"wait-{pushes}", backend="local", run_name="digits-1", do_xcom_push=pushes
            )
            with capture_logs() as logs:
                sensor.poke({})  # type: ignore[typeddict-item]  # the context is not used
            notes = [entry["event"] for entry in logs if str(entry["event"]).startswith("no result: rank 0 wrote none")]
            assert len(notes) == pushes

    def test_a_secret_that_airflow_masks_in_logs_is_masked_in_the_result(self, stepset_home: Path) -> None:
        mask_secret("planted-7c1e")
        start("import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('{\"url\": \"u:planted-7c1e@hub\"}')")
        sensor = DistributedTrainSensor(task_id="wait", backend="local", run_name="digits-1")
        done = sensor.poke({})  # type: ignore[typeddict-item]  # the context is not used
        assert done.xcom_value == {"url": "u:***@hub"}

    def test_the_sensor_does_not_report_another_run_of_the_same_job(self, stepset_home: Path) -> None:
        start("pass", "digits-7")
        sensor = DistributedTrainSensor(task_id="wait", backend="local", run_name="digits")
        assert not sensor.poke({}).is_done  # type: ignore[typeddict-item]

    def test_the_name_of_a_job_is_reported_once_with_the_newest_run(self, write_dag: WriteDag, run_dag: RunDag) -> None:
        start("pass", "digits-7")
        sensor = WAIT.replace("digits-1", "digits").replace("timeout=30", "timeout=1")
        run = run_dag(write_dag(f"{sensor})", imports=IMPORTS))
        assert run.task_state("wait") == "failed"
        (note,) = (line for line in run.lines if "no run is named" in line)
        assert "'digits' is the name of a job, whose newest run is digits-7; the sensor waits" in note
        assert "xcom_pull" not in note  # the operator of a local run waits for its run
        assert "no such run" not in "\n".join(run.lines)

    def test_a_missing_run_is_reported_again_when_the_reason_changes(self, stepset_home: Path) -> None:
        sensor = DistributedTrainSensor(task_id="wait", backend="local", run_name="digits")
        with capture_logs() as log:
            for run in (None, "digits-7", "digits-8"):
                if run is not None:
                    start("pass", run)
                for _ in range(2):
                    sensor.poke({})  # type: ignore[typeddict-item]  # the context is not used
        notes = [str(entry["event"]) for entry in log if "no run is named" in str(entry["event"])]
        assert len(notes) == 3
        assert "newest run" not in notes[0]
        assert "newest run is digits-7;" in notes[1]
        assert "newest run is digits-8;" in notes[2]

    def test_each_process_of_a_rescheduled_sensor_does_not_report_the_missing_run_again(
        self, write_dag: WriteDag, run_dag: RunDag
    ) -> None:
        sensor = WAIT.replace("timeout=30", 'timeout=2, mode="reschedule"')
        run = run_dag(write_dag(f"{sensor})", imports=IMPORTS))
        assert run.task_state("wait") == "failed"
        assert len([line for line in run.lines if "no run is named" in line]) == 1, run.explained()

    def test_each_process_of_a_rescheduled_sensor_reports_that_the_run_cannot_be_read(
        self, stepset_home: Path, write_dag: WriteDag, run_dag: RunDag
    ) -> None:
        state = stepset_home / "runs/digits-1/state.json"
        state.parent.mkdir(parents=True)
        state.write_text("{")
        sensor = WAIT.replace("timeout=30", 'timeout=2, mode="reschedule"')
        run = run_dag(write_dag(f"{sensor})", imports=IMPORTS))
        assert run.task_state("wait") == "failed"
        assert len([line for line in run.lines if f"{state}: cannot be read" in line]) > 1, run.explained()

    def test_the_default_backend_is_that_of_the_deployment(
        self, stepset_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__STEPSET__BACKEND", "local")
        start("pass")
        sensor = DistributedTrainSensor(task_id="wait", run_name="digits-1", start_from_trigger=True)
        assert not sensor.start_from_trigger
        assert sensor.poke({}).is_done  # type: ignore[typeddict-item]


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ({"run_name": ""}, "run_name: '' is not known; give the name of a run"),
            ({"target": "pod"}, "target: 'pod' is not known; use jobset, trainjob, statefulset, job, volcano"),
            ({"backend": "slurm"}, "backend: 'slurm' is not known; use local, kubernetes"),
            (
                {"poll_interval": "often"},
                "poll_interval: 'often' is not a positive duration; give a number of seconds such as 10, text such as"
                " '5m', or a timedelta",
            ),
            (
                {"backend": "local", "start_from_trigger": True},
                "start_from_trigger: a triggerer cannot read the runs of a worker's machine; leave it out",
            ),
        ],
    )
    def test_an_invalid_value_is_one_line(self, parameters: dict[str, Any], expected: str) -> None:
        assert problem(ValueError, **parameters) == f"DAG 'nightly', task 'wait': {expected}"

    @pytest.mark.parametrize("deferrable", [True, False])
    @pytest.mark.parametrize(
        ("parameter", "value", "expected"),
        [
            ("backend", "slurm", "backend: 'slurm' is not known; use local, kubernetes"),
            ("target", "pod", "target: 'pod' is not known; use jobset, trainjob, statefulset, job, volcano"),
            ("run_name", "", "run_name: '' is not known; give the name of a run"),
        ],
    )
    def test_an_invalid_value_that_was_rendered_fails_the_task_without_another_try(
        self, parameter: str, value: str, expected: str, deferrable: bool
    ) -> None:
        sensor = DistributedTrainSensor(
            task_id="wait", deferrable=deferrable, **{"run_name": "digits-1", parameter: "{{ params.x }}"}
        )
        setattr(sensor, parameter, value)
        with pytest.raises(AirflowFailException) as raised:
            sensor.execute({})  # type: ignore[typeddict-item]  # the context is not used
        assert str(raised.value) == expected

    def test_a_triggerer_from_the_start_needs_a_backend_without_a_template(self) -> None:
        assert problem(ValueError, backend="{{ params.b }}", start_from_trigger=True) == (
            "DAG 'nightly', task 'wait': start_from_trigger: a triggerer does not render backend; give backend without"
            " a template"
        )
        for native in (False, True):
            with DAG("nightly", schedule=None, render_template_as_native_obj=native):
                for backend in ("kubernetes", None):
                    DistributedTrainSensor(
                        task_id=f"wait-{backend}", run_name="digits-1", backend=backend, start_from_trigger=True
                    )

    def test_a_template_is_not_validated(self) -> None:
        with DAG("nightly", schedule=None):
            DistributedTrainSensor(
                task_id="wait", run_name="{{ ds }}", backend="{{ params.b }}", target="{{ params.t }}"
            )

    @pytest.mark.parametrize("deferrable", [True, False])
    def test_the_name_of_an_airflow_task_is_an_error_that_states_where_the_name_of_its_run_is(
        self, deferrable: bool
    ) -> None:
        expected = "run_name: 'nightly.train' cannot be the name of a run; this may be the name of an Airflow task"
        found = problem(ValueError, run_name="nightly.train", deferrable=deferrable)
        assert found.startswith(f"DAG 'nightly', task 'wait': {expected} (DAG.TASK); `stepset list` prints")
        assert "run_name=\"{{ ti.xcom_pull(task_ids='TASK')['run'] }}\"" in found
        sensor = DistributedTrainSensor(task_id="wait", deferrable=deferrable, run_name="{{ params.x }}")
        sensor.run_name = "nightly.train"
        with pytest.raises(AirflowFailException) as raised:
            sensor.execute({})  # type: ignore[typeddict-item]  # the context is not used
        assert str(raised.value).startswith(expected)
        sensor.run_name = "None"
        with pytest.raises(AirflowFailException, match=r"^run_name: a template was rendered as 'None'"):
            sensor.execute({})  # type: ignore[typeddict-item]  # the context is not used

    def test_the_remedy_for_a_local_run_does_not_mention_clusters(self) -> None:
        assert problem(ValueError, run_name="Bad_Name", backend="local").endswith(
            "run_name: 'Bad_Name' cannot be the name of a run; `stepset list` prints the names of runs"
        )

    def test_an_unknown_parameter_names_the_nearest_one(self) -> None:
        assert problem(TypeError, run_nam="a") == (
            "DAG 'nightly', task 'wait': run_nam: unknown parameter; did you mean 'run_name'?"
        )

    def test_a_missing_name_is_reported_with_the_argument_that_may_be_the_name(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(TypeError) as raised:
            DistributedTrainSensor(task_id="wait", run="digits-1", target="pod")  # type: ignore[call-arg]
        lines = [line.removeprefix("DAG 'nightly', task 'wait': ") for line in str(raised.value).splitlines()]
        assert lines == [
            "run: unknown parameter; did you mean 'run_name'?",
            "target: 'pod' is not known; use jobset, trainjob, statefulset, job, volcano",
            "run_name: is missing; give the name of a run",
        ]

    def test_names_and_values_of_a_mapped_sensor_are_checked(self) -> None:
        with DAG("nightly", schedule=None):
            with pytest.raises(ValueError, match="target: 'pod' is not known"):
                DistributedTrainSensor.partial(task_id="a", target="pod")
            with pytest.raises(TypeError, match=r"task 'b': run_names: unknown parameter; did you mean 'run_name'"):
                DistributedTrainSensor.partial(task_id="b").expand(run_names=["a"])
            with pytest.raises(ValueError, match="task 'd', element 1: target: 'pod' is not known"):
                DistributedTrainSensor.partial(task_id="d", run_name="a").expand(target=["jobset", "pod"])
            DistributedTrainSensor.partial(task_id="c", backend="local").expand(run_name=["a", "b"])

    def test_default_args_may_contain_arguments_of_other_operators(self) -> None:
        with DAG("nightly", schedule=None, default_args={"num_nodes": 2, "env_vars": {}}):
            DistributedTrainSensor(task_id="wait", run_name="digits-1")
