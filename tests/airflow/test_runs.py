"""Airflow runs tasks of the operator and of the decorator with backend="local"."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import redact

import stepset
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import asset_event_extras

pytestmark = [pytest.mark.airflow, pytest.mark.local]

WORLD = 'framework={"kind": "torch", "launcher": "none"}, num_nodes=2, procs_per_node=2, script="train.py"'
LOCAL = f'task_id="train", backend="local", {WORLD}'
WRITES_RESULT = """
    import json, os, sys
    print("hello from", os.environ["RANK"], flush=True)
    print(json.dumps({"stepset": {"step": 7, "progress": 0.7, "metrics": {"loss": 0.25}}}), flush=True)
    if os.environ["RANK"] == "0":
        result = {"world": int(os.environ["WORLD_SIZE"]), "args": sys.argv[1:], "env": os.environ.get("WHERE")}
        open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps(result))
"""
RANK_3_FAILS = """
    import os, sys, time
    if os.environ["RANK"] == "3":
        sys.exit(open(__file__).close() or int("no number"))
    time.sleep(60)
"""


@pytest.mark.smoke
def test_the_result_of_rank_0_is_the_task_s_xcom_and_its_lines_are_in_the_task_log(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    run = run_dag(write_dag(f"DistributedTrainOperator({LOCAL}, args=['--epochs', 3])", WRITES_RESULT))
    assert run.xcom("train") == {"world": 4, "args": ["--epochs", "3"], "env": None}
    assert "[rank 0] hello from 0" in run.lines
    assert "[rank 1] hello from 1" not in run.lines
    assert "progress: 70 %, step 7, loss=0.25" in run.lines
    assert not [line for line in run.lines if '{"stepset"' in line]
    assert 'result: {"world": 4, "args": ["--epochs", "3"], "env": null}' in run.lines
    [found] = [each for each in stepset.list_runs() if "dag_id" in each.labels]
    assert stepset.status(f"{found.labels['dag_id']}.train").name == found.name


def test_the_log_states_that_a_run_has_no_result(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag(f"DistributedTrainOperator({LOCAL})", "pass"))
    assert run.state == "success"
    assert len([line for line in run.lines if line.startswith("no result: rank 0 wrote none")]) == 1


RANK_3_SLEEPS = """
    import json, os, socket, time
    def load(): time.sleep(1000)
    def reduce(): socket.create_server(("127.0.0.1", 0)).accept()
    print(json.dumps({"stepset": {"step": 1}}), flush=True)
    load() if os.environ["RANK"] == "3" else reduce()
"""


def test_a_run_that_hangs_fails_if_the_job_says_so_and_the_task_names_the_rank(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    world = LOCAL.replace("num_nodes=2, procs_per_node=2", "procs_per_node=4")
    action = 'hang={"after": "3s", "action": "fail"}, restart={"max_restarts": 2}'
    run = run_dag(write_dag(f"DistributedTrainOperator({world}, {action})", RANK_3_SLEEPS))
    assert run.state == "failed"
    [line] = [line for line in run.lines if "a hang has ended the run" in line]
    assert "rank 3 has not joined; sleeping in load train.py:3" in line


TORCHRUN_FAILS = """
    import sys, time, torch
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    for step in range(5):
        sys.stderr.write(f"\\r{step} of 4")
        time.sleep(0.05)
    sys.stderr.write("\\n")
    torch.distributed.barrier()
    if rank == 1:
        raise ValueError("bad batch")
    torch.distributed.barrier()
"""


@pytest.mark.frameworks
def test_after_the_first_failure_lines_of_launchers_and_stopped_ranks_are_omitted(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    task = (
        'DistributedTrainOperator(task_id="train", backend="local", framework="torch", num_nodes=2, procs_per_node=2,'
        ' script="train.py", log_ranks="all")'
    )
    run = run_dag(write_dag(task, TORCHRUN_FAILS))
    assert run.state == "failed"
    shown = [line for line in run.lines if line.startswith("[")]
    bars = [f"[rank {rank}] 4 of 4" for rank in range(4)]
    assert sorted(line for line in shown if line in bars) == bars
    traceback = [line for line in shown if line not in bars and "Traceback" not in line and "  " not in line]
    assert traceback == ["[rank 1] ValueError: bad batch"]
    assert sum("Traceback" in line for line in shown) == 1
    assert sum("omitted after the first failure: " in line for line in run.lines) == 1


def test_log_ranks_all_shows_every_rank(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag(f"DistributedTrainOperator({LOCAL}, log_ranks='all')", WRITES_RESULT))
    for rank in range(4):
        assert run.lines.count(f"[rank {rank}] hello from {rank}") == 1


def test_fields_are_templated_within_mappings_and_lists_too(write_dag: WriteDag, run_dag: RunDag) -> None:
    task = (
        f"DistributedTrainOperator({LOCAL},"
        ' args=["--epochs", "{{ params.epochs }}"], env={"WHERE": {"value": "{{ dag.dag_id }}"}})'
    )
    path = write_dag(task, WRITES_RESULT, dag='params={"epochs": 5}')
    run = run_dag(path, conf={"epochs": 9})
    assert run.xcom("train") == {"world": 4, "args": ["--epochs", "9"], "env": path.parent.name}


def test_an_upstream_task_s_output_is_an_argument(write_dag: WriteDag, run_dag: RunDag) -> None:
    tasks = f"""
        @task
        def prepare():
            return "/data/digits.npz"

        DistributedTrainOperator({LOCAL}, args=["--data", prepare()])
    """
    run = run_dag(write_dag(tasks, WRITES_RESULT))
    assert run.xcom("train")["args"] == ["--data", "/data/digits.npz"]


def test_a_mapped_task_trains_once_for_each_value(write_dag: WriteDag, run_dag: RunDag, stepset_home: Path) -> None:
    mapped = f"DistributedTrainOperator.partial({LOCAL}).expand(args=[['--lr', '0.1'], ['--lr', '0.2']])"
    run = run_dag(write_dag(mapped, WRITES_RESULT))
    assert run.state == "success"
    results = [run.xcom(f"train[{i}]", map_indexes=i) for i in range(2)]
    assert [result["args"] for result in results] == [["--lr", "0.1"], ["--lr", "0.2"]]
    pages = [run.xcom(f"train[{i}]", map_indexes=i, key="stepset_training") for i in range(2)]
    assert [dict(page["parameters"])["lr"] for page in pages] == ["0.1", "0.2"]
    assert len(list((stepset_home / "runs").iterdir())) == 2


def test_parameters_override_the_fields_of_a_job_file_beside_the_dag(write_dag: WriteDag, run_dag: RunDag) -> None:
    path = write_dag(
        'DistributedTrainOperator(task_id="train", backend="local", job="job.yaml", args=["over"])', WRITES_RESULT
    )
    job = {"framework": {"kind": "torch", "launcher": "none"}, "num_nodes": 3, "procs_per_node": 1, "args": ["under"]}
    (path.parent / "job.yaml").write_text(json.dumps({**job, "script": "train.py"}))
    assert run_dag(path).xcom("train") == {"world": 3, "args": ["over"], "env": None}


def test_a_failing_rank_fails_the_task_with_the_diagnosis_first(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag(f"DistributedTrainOperator({LOCAL})", RANK_3_FAILS))
    assert run.task_state("train") == "failed"
    error = run.error
    assert isinstance(error, AirflowException)
    first, *rest = str(error).splitlines()
    assert "UserError" in first
    assert "rank 3" in "\n".join([first, *rest[:1]])
    assert "ValueError: invalid literal for int() with base 10: 'no number'" in str(error)
    assert any(line.startswith("  last lines    ") for line in rest)


def test_a_failed_training_is_retried_from_its_checkpoint(write_dag: WriteDag, run_dag: RunDag, tmp_path: Path) -> None:
    script = """
        import json, os, sys
        from pathlib import Path
        if os.environ["RANK"] == "0":
            done = Path(os.environ["STEPSET_CHECKPOINT_DIR"], "done")
            resumed_from = os.environ.get("STEPSET_RESUME_FROM")
            if resumed_from is None:
                done.write_text("half")
                sys.exit("the first try always fails")
            result = {"attempt": os.environ["STEPSET_ATTEMPT"], "found": Path(resumed_from, "done").read_text()}
            Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))
    """
    task = f"DistributedTrainOperator({LOCAL}, checkpoint_dir={str(tmp_path / 'ckpt')!r}, retries=1, retry_delay=0.1)"
    run = run_dag(write_dag(task, script))
    assert run.tries("train") == 2
    assert run.xcom("train") == {"attempt": "1", "found": "half"}
    (why,) = [line for line in run.lines if line.startswith("this try starts another run")]
    assert why.startswith("this try starts another run, because run train-")
    assert why.endswith("UserError: rank 0 (pod node-0) exited with code 1: the first try always fails")
    states = [line for line in run.lines if "Running" in line]
    assert run.lines.index(why) > run.lines.index(states[0]), "the first try has no reason"


@pytest.mark.parametrize(
    ("parameters", "script", "problem"),
    [
        pytest.param("script=\"{{ 'nowhere.py' }}\"", "", "script: no such file", id="no such script"),
        pytest.param("job=\"{{ ti.xcom_pull('x') }}\"", "", "job: a template was rendered as 'None'", id="no value"),
        pytest.param('script="train.py", num_nodes="{{ 1 - 1 }}"', "", "num_nodes: '0' is too small", id="no nodes"),
        pytest.param('script="train.py", env={"RANK": "0"}', "", "env.RANK: reserved", id="reserved variable"),
        pytest.param(
            'script="train.py"',
            "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('1' * 5000)",
            "the program succeeded, but the result is 5000 bytes",
            id="result over the limit",
        ),
    ],
)
def test_an_error_that_a_retry_cannot_fix_is_not_retried(
    write_dag: WriteDag, run_dag: RunDag, parameters: str, script: str, problem: str
) -> None:
    framework = 'framework={"kind": "torch", "launcher": "none"}'
    task = f'DistributedTrainOperator(task_id="train", backend="local", {framework}, {parameters}, retries=3)'
    run = run_dag(write_dag(task, script))
    assert (run.task_state("train"), run.tries("train")) == ("failed", 1)
    assert isinstance(run.error, AirflowFailException)
    assert problem in str(run.error)
    assert ("a checkpoint_dir, the new run continues" in str(run.error)) == ("result is" in problem)
    assert "exited with code 72" not in str(run.error)


def test_an_unknown_backend_is_refused_by_name(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(
        write_dag(f'DistributedTrainOperator(task_id="train", backend="{{{{ \'slurm\' }}}}", {WORLD}, retries=3)')
    )
    assert run.tries("train") == 1
    assert "backend: 'slurm' is not known" in str(run.error)


@pytest.mark.parametrize(
    ("mapped", "problem"),
    [
        (("num_nodes", "two"), "num_nodes: 'two' is not a whole number"),
        (("on_kill_action", "stop"), "on_kill_action: 'stop' is not known; use delete, suspend, keep"),
    ],
    ids=["field", "option"],
)
def test_an_invalid_mapped_value_of_another_task_fails_its_task_without_another_try(
    write_dag: WriteDag, run_dag: RunDag, mapped: tuple[str, str], problem: str
) -> None:
    given = 'task_id="train", backend="local", script="train.py", retries=3'
    name, value = mapped
    values = f"@task\ndef values():\n    return [{value!r}]\n"
    run = run_dag(write_dag(f"{values}DistributedTrainOperator.partial({given}).expand({name}=values())"))
    assert (run.task_state("train[0]"), run.tries("train[0]")) == ("failed", 1)
    assert isinstance(run.error, AirflowFailException)
    assert problem in str(run.error)


def test_the_exit_code_policy_may_skip_the_task(write_dag: WriteDag, run_dag: RunDag) -> None:
    task = f"DistributedTrainOperator({LOCAL}, exit_code_policy={{42: 'skip'}})"
    run = run_dag(write_dag(task, "import os, sys; sys.exit(42 if os.environ['RANK'] == '1' else 0)"))
    assert (run.state, run.task_state("train")) == ("success", "skipped")
    (skipped,) = [entry for entry in run.log if entry["event"] == "Skipping task."]
    first, second, *details = skipped["reason"].splitlines()
    assert first == "the task is skipped, because exit_code_policy maps exit code 42 to skip"
    assert " failed after " in second
    assert details
    assert not any(line.startswith(("  advice ", "  see ")) for line in details)


def test_the_events_of_its_outlets_contain_the_result_and_the_checkpoint(
    write_dag: WriteDag, run_dag: RunDag, tmp_path: Path
) -> None:
    task = f"""
        DistributedTrainOperator({LOCAL}, outlets=[Asset("tested_model")], checkpoint_dir={str(tmp_path / "ckpt")!r})
    """
    script = """
        import json, os
        if os.environ["RANK"] == "0":
            open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"loss": 0.1}))
    """
    run = run_dag(write_dag(task, script))
    assert run.state == "success"
    extra = asset_event_extras("tested_model")[-1]
    assert extra["run"].startswith("train-")
    assert {key: extra[key] for key in ("loss", "checkpoint")} == {"loss": 0.1, "checkpoint": str(tmp_path / "ckpt")}


def test_secrets_that_airflow_masks_in_logs_are_masked_in_the_result(
    write_dag: WriteDag, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_HUB_TOKEN", "plänted-variable")
    monkeypatch.setenv("AIRFLOW_CONN_HUB", json.dumps({"conn_type": "http", "password": "planted-password"}))
    task = f"""
        env = {{"TOKEN": "{{{{ var.value.hub_token }}}}", "PASSWORD": "{{{{ conn.hub.password }}}}"}}
        DistributedTrainOperator({LOCAL}, env=env, outlets=[Asset("masked_model")])
    """
    script = """
        import json, os
        token, password = os.environ["TOKEN"], os.environ["PASSWORD"]
        result = {"used": [{"url": f"https://u:{password}@hub"}], token: 1, "tokenizer": "bpe", "tokens": 12345}
        if os.environ["RANK"] == "0":
            open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"deep": [[[[[[token]]]]]], **result}))
    """
    run = run_dag(write_dag(task, script))
    used = [{"url": "https://u:***@hub"}]
    masked = {"deep": [[[[[["***"]]]]]], "used": used, "***": 1, "tokenizer": "bpe", "tokens": 12345}
    assert run.xcom("train") == masked
    assert json.loads(run.xcom("train", key="stepset_training")["result"]) == masked
    extra = asset_event_extras("masked_model")[-1]
    assert {name: extra[name] for name in masked} == masked


def test_secrets_are_masked_in_the_log_and_in_the_exception(
    write_dag: WriteDag, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", "planted-token\nplanted-second-line\n")
    monkeypatch.setenv("AIRFLOW_CONN_HUB", json.dumps({"conn_type": "http", "password": "planted-password"}))
    notified = tmp_path / "exception.txt"
    task = f"""
        env = {{"TOKEN": {{"secret": "hub", "key": "token"}}, "PASSWORD": "{{{{ conn.hub.password }}}}"}}
        write = lambda context: Path({str(notified)!r}).write_text(str(context["exception"]))
        DistributedTrainOperator({LOCAL}, env=env, on_failure_callback=write)
    """
    script = """
        import os, time
        if os.environ["RANK"] != "0":  # the first failing rank must be the one whose lines the log shows
            time.sleep(60)
        print("the token:", os.environ["TOKEN"], flush=True)
        raise ValueError("401 for " + os.environ["TOKEN"].split()[0] + " " + os.environ["PASSWORD"])
    """
    run = run_dag(write_dag(task, script, imports="from pathlib import Path"))
    log = "\n".join(redact(line) for line in run.lines)  # what mask_logs of airflow.sdk.log writes
    assert "the token: ***" in log
    assert "ValueError: 401 for *** ***" in notified.read_text()
    assert "planted" not in log + notified.read_text()


FUNCTION = """
    Undefined = float  # not sent with the function

    @task.distributed_train(framework={"kind": "torch", "launcher": "none"}, num_nodes=2, backend="local")
    def fit(data, lr: Undefined = 0.1, *, notes=()):
        '''Annotations are not evaluated.
        # This line is part of a text.
        '''
        import os

        # A comment.
        return {"rank": os.environ["RANK"], "data": data, "lr": lr, "notes": notes, "doc": "# This" in fit.__doc__}
"""


@pytest.mark.smoke
def test_a_decorated_function_runs_in_every_rank_and_returns_the_value_of_rank_0(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    tasks = """
        @task
        def prepare():
            return {"rows": [1, 2]}

        fit(prepare(), notes=["{{ dag.dag_id }}", None, 1.5])
    """
    path = write_dag(tasks, imports=FUNCTION)
    run = run_dag(path)
    notes = [path.parent.name, None, 1.5]
    assert run.xcom("fit") == {"rank": "0", "data": {"rows": [1, 2]}, "lr": 0.1, "notes": notes, "doc": True}


def test_a_decorated_function_is_mapped_like_any_task(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag("fit.partial(data=None).expand(lr=[0.1, 0.2])", imports=FUNCTION))
    results = [run.xcom(f"fit[{i}]", map_indexes=i) for i in range(2)]
    assert [result["lr"] for result in results] == [0.1, 0.2]
    pages = [run.xcom(f"fit[{i}]", map_indexes=i, key="stepset_training") for i in range(2)]
    assert [dict(page["parameters"])["lr"] for page in pages] == ["0.1", "0.2"]


def test_an_argument_that_is_not_json_is_reported_with_its_position(write_dag: WriteDag, run_dag: RunDag) -> None:
    tasks = """
        @task
        def prepare():
            import datetime

            return {"when": [datetime.datetime.now(datetime.UTC)]}

        fit({"of": [prepare()]})
    """
    run = run_dag(write_dag(tasks, imports=FUNCTION))
    assert str(run.error).startswith("args[0].of[0].when[0]: a value of type "), run.explained()
