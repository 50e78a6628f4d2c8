"""`distributed_train` under KFP's local runner: real processes, real DDP, no cluster and no Docker."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from kfp import dsl, local

from stepset_kfp import distributed_train, wait_for_training
from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.kfp.pipelines import DDP, one_step, run_pipeline
from tests.security.deep_trees import PROGRAM
from tests.waiting import until

pytestmark = pytest.mark.local

BY_STEPSET = {"kind": "torch", "launcher": "none"}
"""The framework of tests that do not need torchrun: importing torch would take most of their time."""


@pytest.mark.smoke
def test_a_step_trains_on_two_nodes_and_writes_its_outputs(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(DDP)
    saved = str(tmp_path / "model.pt")

    @dsl.pipeline(name="test-outputs")
    def pipeline(saved: str, epochs: int, rate: float) -> None:
        distributed_train(
            base_dir=tmp_path,
            framework="torch",
            num_nodes=2,
            procs_per_node=2,
            script="train.py",
            args=[saved, "--epochs", epochs, "--rate", rate, 7],
            log_ranks="0,3",
        )

    ran = run_pipeline(pipeline, tmp_path / "out", saved=saved, epochs=2, rate=0.5)
    assert ran.error is None
    task = "distributed-train"
    result = json.loads(ran.output(task, "result").read_text())
    assert result["sum"] == 4.0, "all four ranks took part"
    assert ran.output(task, "model").read_bytes() == Path(saved).read_bytes()
    words = ["--epochs", "2", "--rate", "0.5", "7"]
    assert f"[rank 3] argv {[saved, *words]}" in ran.log, "a whole number stays whole"
    assert "[rank 1]" not in ran.log, "log_ranks selects the ranks"
    assert ran.output(task, "run").read_text().startswith("train-")
    artifacts = json.loads(ran.output(task, "executor_output.json").read_text())["artifacts"]
    metrics = artifacts["metrics"]["artifacts"][0]["metadata"]
    assert metrics == {"sum": 4.0, "loss": pytest.approx(1 / 3)}
    assert artifacts["model"]["artifacts"][0]["metadata"]["world_size"] == 4
    page = ran.output(task, "report").read_text()
    assert "<polyline" in page and "rank 3" in page and "Succeeded" in page


def test_a_parameter_of_the_pipeline_may_be_anywhere_inside_an_input(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import json, os\n"
        "with open(os.environ['STEPSET_RESULT_FILE'], 'w') as file:\n"
        "    json.dump({name: os.environ[name] for name in ('RATE', 'EPOCHS', 'WHERE')}, file)\n"
    )

    @dsl.pipeline(name="test-parameters")
    def pipeline(rate: float, epochs: int, where: str) -> None:
        env = {"RATE": rate, "EPOCHS": epochs, "WHERE": {"value": where}}
        distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py", env=env)

    ran = run_pipeline(pipeline, tmp_path / "out", rate=0.5, epochs=3, where="/data")
    assert ran.error is None
    result = json.loads(ran.output("distributed-train", "result").read_text())
    assert result == {"RATE": "0.5", "EPOCHS": "3", "WHERE": "/data"}, "a whole number stays whole"


def test_a_failing_rank_fails_the_step_and_is_reported(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('the <b>label</b> is wrong')\n"
        "import time\ntime.sleep(600)\n"
    )
    ran = run_pipeline(
        one_step(
            lambda: distributed_train(
                base_dir=tmp_path, framework=BY_STEPSET, num_nodes=1, procs_per_node=2, script="train.py"
            )
        ),
        tmp_path / "out",
    )
    assert ran.error is not None
    assert "rank 1" in ran.log and "ValueError: the <b>label</b> is wrong" in ran.log
    messages = ran.log.split("stepset: run train-", 1)[1]
    assert "in train\n" not in messages, "no traceback of the step's own code"
    page = ran.output("distributed-train", "report").read_text()
    assert "the &lt;b&gt;label&lt;/b&gt; is wrong" in page, "the training's output is escaped in the report"


def test_after_the_first_failure_the_step_omits_lines_of_launchers_and_stopped_ranks(
    tmp_path: Path, home: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, time, torch\ntorch.distributed.init_process_group('gloo')\n"
        "for step in range(5):\n    sys.stderr.write(f'\\r{step} of 4')\n    time.sleep(0.05)\n"
        "sys.stderr.write('\\n')\ntorch.distributed.barrier()\n"
        "if torch.distributed.get_rank() == 1:\n    raise ValueError('bad batch')\ntorch.distributed.barrier()\n"
    )
    training = {"framework": "torch", "num_nodes": 2, "procs_per_node": 2, "script": "train.py", "log_ranks": "all"}
    ran = run_pipeline(one_step(lambda: distributed_train(base_dir=tmp_path, **training)), tmp_path / "out")
    assert ran.error is not None
    shown = re.findall(r"\[(?:rank|node) \d\] .*", ran.log)
    assert sorted(line for line in shown if "4 of 4" in line) == [f"[rank {rank}] 4 of 4" for rank in range(4)]
    assert [line for line in shown if "Error: " in line] == ["[rank 1] ValueError: bad batch"]
    assert sum("Traceback" in line for line in shown) == 1
    assert ran.log.count("omitted after the first failure: ") == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"framework": "pytroch", "script": "train.py"}, "did you mean 'torch'?"),
        ({"script": "train.py", "module": "train"}, "script and module are given"),
        ({"script": "nowhere.py"}, "no such file"),
        ({"module": "this", "on_interrupt": "pause"}, "use one of suspend, delete, leave"),
        ({"module": "this", "backend": "cloud"}, "use one of auto, local, kubernetes"),
        ({"module": "this", "log_ranks": "first"}, "use all, failed, or ranks"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_ends_the_step_with_a_message(
    tmp_path: Path, home: Path, inputs: dict[str, str], message: str
) -> None:
    ran = run_pipeline(one_step(lambda: component(**inputs)), tmp_path / "out")
    assert ran.error is not None
    assert message in ran.log
    assert "Traceback" not in ran.log
    assert not list(home.glob("runs/*")), "no run was started"


def test_a_step_and_its_ranks_end_when_the_pipelines_program_is_killed(tmp_path: Path, home: Path) -> None:
    marks = tmp_path / "pids"
    marks.mkdir()
    (tmp_path / "train.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(marks)!r}, str(os.getpid())).touch()\ntime.sleep(600)\n"
    )
    program = tmp_path / "pipeline.py"
    program.write_text(
        dedent(
            f"""
            from kfp import dsl, local
            from stepset_kfp import distributed_train
            local.init(local.SubprocessRunner(use_venv=False), pipeline_root={str(tmp_path / "out")!r})

            @dsl.pipeline(name="killed")
            def pipeline():
                distributed_train(framework={BY_STEPSET!r}, num_nodes=2, procs_per_node=1, script="train.py")

            pipeline()
            """
        )
    )
    driver = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert until(lambda: len(list(marks.iterdir())) == 2), "both ranks started"
        ranks = [int(mark.name) for mark in marks.iterdir()]
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert until(lambda: not any(map(_alive, ranks))), "the ranks end with the pipeline"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_task_outside_of_a_pipeline_has_its_outputs_when_it_is_created(tmp_path: Path, home: Path) -> None:
    program = "import json, os; json.dump({'loss': 0.5}, open(os.environ['STEPSET_RESULT_FILE'], 'w'))"
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "out"))
    task = distributed_train(framework="plain", function=program)
    assert task.outputs["result"] == {"loss": 0.5}
    assert wait_for_training(run=task.outputs["run"]).outputs["result"] == {"loss": 0.5}


def test_deep_folders_beside_the_code_of_a_step_are_deleted(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "train.py").write_text(f"{PROGRAM}\ndeep(os.path.dirname(os.path.abspath(__file__)))\n")
    ran = run_pipeline(
        one_step(lambda: distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py")),
        tmp_path / "out",
    )
    assert ran.error is None, ran.log
    assert {path.name for path in temporary.glob("stepset-*")} <= {f"stepset-{os.getuid()}"}
