"""`distributed_train` in pods of a real cluster, with the minimal Role, started as by KFP and ended as by Argo."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from stepset_kfp import distribute, distributed_train
from stepset_kfp.training.cleanup_training import cleanup_training
from stepset_kfp.training.wait_for_training import wait_for_training
from tests.cluster.queues import queue
from tests.cluster.runs import runs_in
from tests.cluster.testbed.handle import Cluster
from tests.kfp.node_names import step_node
from tests.kfp.pipelines import DDP, one_step, run_pipeline
from tests.kfp.steps import LONGEST, SHORTEST, WAITS, Steps, emissary
from tests.violations import at_most

pytestmark = pytest.mark.cluster


@pytest.mark.gate
def test_a_step_creates_a_jobset_follows_it_and_writes_its_outputs(steps: Steps) -> None:
    saved = str(steps.shared / "model.pt")
    pod = steps.start(DDP, framework="torch", procs_per_node=2, args=[saved], log_ranks="all", shm="64Mi")
    assert steps.wait(pod) == 0, steps.log(pod)
    out = steps.out(pod)
    assert json.loads((out / "result").read_text())["sum"] == 4.0
    assert (out / "model").read_bytes() == Path(saved).read_bytes()
    artifacts = json.loads((out / "executor_output.json").read_text())["artifacts"]
    assert artifacts["metrics"]["artifacts"][0]["metadata"] == {"sum": 4.0, "loss": pytest.approx(1 / 3)}
    page = (out / "report").read_text()
    assert "Succeeded" in page and "rank 3" in page and "<polyline" in page
    assert f"[rank 3] argv ['{saved}']" in steps.log(pod)
    assert f"ships 1 file of {(steps.shared / 'train.py').stat().st_size} bytes: train.py" in steps.log(pod)

    (jobset,) = steps.jobsets()
    metadata = jobset["metadata"]
    assert metadata["name"] == (out / "run").read_text()
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["blockOwnerDeletion"]) == ("Workflow", "digits-x7k2p", False)
    assert metadata["labels"]["kfp.stepset.dev/run"] == "8d0f3f0e"
    pods = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}} in pods["spec"]["volumes"]
    assert pods["spec"]["automountServiceAccountToken"] is False
    assert pods["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"


def terminate(steps: Steps, pod: str) -> None:
    """Ends a step as Argo does when a user terminates the pipeline."""
    steps.cluster.kubectl("exec", pod, "-n", steps.namespace, "--", "/bin/sh", "-c", "kill -TERM 1")
    assert steps.wait(pod) == 143


def test_a_terminated_step_suspends_its_run_and_the_next_tries_continue_from_the_checkpoint(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    steps.launcher = emissary(LONGEST, LONGEST)
    first = steps.start(WAITS, checkpoint_dir=str(home))
    steps.wait_for_line(first, "begins from nothing attempt 0")
    terminate(steps, first)
    assert "is suspended" in steps.log(first)
    (jobset,) = steps.jobsets()
    assert jobset["spec"]["suspend"] is True

    second = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(above=1))
    steps.wait_for_line(second, "begins from checkpoint attempt 1")
    terminate(steps, second)
    third = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(above=1, try_number=1))
    steps.wait_for_line(third, "begins from checkpoint attempt 2")
    (home / "go").touch()
    assert steps.wait(third) == 0, steps.log(third)
    assert json.loads((steps.out(third) / "result").read_text())["begin"] == "checkpoint"
    assert at_most(1, [each["metadata"]["uid"] for each in steps.jobsets()]) == [jobset["metadata"]["uid"]]


def test_a_restart_by_the_cluster_after_a_resumption_is_counted(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    fails = "    if (home / 'fail').exists():\n        (home / 'fail').unlink()\n        raise ValueError('no luck')\n"
    text = WAITS.replace("    time.sleep(0.1)\n", f"    time.sleep(0.1)\n{fails}")
    settings = {"checkpoint_dir": str(home), "num_nodes": 1, "restart": {"max_restarts": 1}}
    steps.launcher = emissary(LONGEST, LONGEST)
    first = steps.start(text, **settings)
    steps.wait_for_line(first, "begins from nothing attempt 0")
    terminate(steps, first)
    second = steps.start(text, **settings, node=step_node(try_number=1))
    steps.wait_for_line(second, "begins from checkpoint attempt 1")
    (home / "fail").touch()
    steps.wait_for_line(second, "begins from checkpoint attempt 2")
    (home / "go").touch()
    assert steps.wait(second) == 0, steps.log(second)


@pytest.mark.parametrize("seconds", [(SHORTEST, SHORTEST), (SHORTEST, LONGEST)])
def test_however_long_a_terminated_step_lives_the_next_try_continues_the_same_run(
    steps: Steps, seconds: tuple[float, float]
) -> None:
    home = steps.shared / "checkpoints"
    steps.launcher = emissary(*seconds)
    first = steps.start(WAITS, checkpoint_dir=str(home))
    steps.wait_for_line(first, "begins from nothing")
    terminate(steps, first)
    (jobset,) = steps.jobsets()
    second = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(above=1))
    steps.wait_for_line(second, "begins from" if jobset["spec"].get("suspend") else "reattaching to it")
    (home / "go").touch()
    assert steps.wait(second) == 0, steps.log(second)
    assert at_most(1, [each["metadata"]["uid"] for each in steps.jobsets()]) == [jobset["metadata"]["uid"]]


def test_a_terminated_step_deletes_a_queued_run_because_the_queue_would_resume_it(steps: Steps) -> None:
    steps.launcher = emissary(LONGEST, LONGEST)
    # Kueue admits pods without a CPU request, even if the quota is 0.
    asks = {"resources": {"requests": {"cpu": "10m"}}}
    with queue(steps.cluster, steps.namespace, 0) as name:
        pod = steps.start(WAITS, task_config=asks, checkpoint_dir="/tmp/c", queue_name=name)
        steps.wait_for_line(pod, "Pending (Queued)")
        terminate(steps, pod)
        assert "is deleted" in steps.log(pod)
        steps.cluster.wait("the run to be deleted", lambda: not steps.jobsets())


def test_a_step_whose_pod_was_deleted_finds_its_run_again(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    (jobset,) = steps.jobsets()
    steps.cluster.kubectl("delete", "pod", first, "-n", steps.namespace, "--grace-period=0", "--force")
    second = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave", node=step_node(try_number=1))
    steps.wait_for_line(second, "reattaching to it")
    (home / "go").touch()
    assert steps.wait(second) == 0, steps.log(second)
    assert json.loads((steps.out(second) / "result").read_text())["begin"] == "nothing", "the run was not restarted"
    assert at_most(1, [each["metadata"]["uid"] for each in steps.jobsets()]) == [jobset["metadata"]["uid"]]

    third = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave", node=step_node(try_number=2))
    assert steps.wait(third) == 0, "a retry reads the outputs of a run that has succeeded"
    assert len(steps.jobsets()) == 1


def test_a_run_that_failed_is_recreated_by_the_next_try_and_each_start_is_counted(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    text = WAITS.replace(
        "while not", "if os.environ['STEPSET_ATTEMPT'] in '01': raise ValueError('no luck')\nwhile not"
    )
    first = steps.start(text, checkpoint_dir=str(home))
    assert steps.wait(first) == 1
    assert "ValueError: no luck" in steps.log(first) and "Traceback (most recent call last)" in steps.log(first)
    second = steps.start(text, checkpoint_dir=str(home), node=step_node(try_number=1))
    assert steps.wait(second) == 1
    assert "begins from checkpoint attempt 1" in steps.log(second)
    (home / "go").touch()
    third = steps.start(text, checkpoint_dir=str(home), node=step_node(above=1))
    assert steps.wait(third) == 0, steps.log(third)
    assert json.loads((steps.out(third) / "result").read_text())["begin"] == "checkpoint"
    assert len(steps.jobsets()) == 1


def test_a_run_whose_predecessor_was_deleted_with_its_workflow_begins_from_the_checkpoint(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    steps.launcher = emissary(LONGEST, LONGEST)
    first = steps.start(WAITS, checkpoint_dir=str(home))
    steps.wait_for_line(first, "begins from nothing")
    terminate(steps, first)
    steps.cluster.kubectl("delete", "jobsets", "--all", "-n", steps.namespace)
    steps.cluster.wait("the pods to end", lambda: not steps.training_pods())
    second = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(above=1))
    steps.wait_for_line(second, "begins from checkpoint attempt 0")
    (home / "go").touch()
    assert steps.wait(second) == 0, steps.log(second)


def test_runs_are_deleted_with_the_workflow(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    steps.cluster.kubectl("delete", "workflow", "digits-x7k2p", "-n", steps.namespace, "--wait=false")
    steps.cluster.wait("the run to be garbage-collected", lambda: not steps.jobsets())


def test_settings_of_the_task_apply_to_the_training_pods(steps: Steps) -> None:
    task_config = {
        "env": [{"name": "LR", "value": "0.1"}],
        "resources": {"limits": {"memory": "200Mi"}, "requests": {"cpu": "10m"}},
        "tolerations": [{"key": "example-key", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
    }
    text = "import os, pathlib\npathlib.Path(os.environ['STEPSET_RESULT_FILE']).write_text(os.environ['LR'])\n"
    pod = steps.start(text, task_config=task_config, num_nodes=1)
    assert steps.wait(pod) == 0, steps.log(pod)
    assert json.loads((steps.out(pod) / "result").read_text()) == {"value": 0.1}
    (jobset,) = steps.jobsets()
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "200Mi"},
        "requests": {"cpu": "10m", "memory": "200Mi"},
    }
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert task_config["tolerations"][0] in spec["tolerations"]


def test_cleanup_deletes_unfinished_runs_of_the_pipelines_run_and_keeps_succeeded_ones(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    waiting = steps.start_other(wait_for_training, run=steps.jobsets()[0]["metadata"]["name"])
    steps.wait_for_line(waiting, ": Running")
    (home / "go").touch()
    assert steps.wait(first) == 0
    assert steps.wait(waiting) == 0, steps.log(waiting)
    assert json.loads((steps.out(waiting) / "result").read_text())["begin"] == "nothing", (
        "the waiting step outputs the result"
    )

    (home / "go").unlink()
    second = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave", node=step_node("again"))
    steps.wait_for_line(second, "begins from")
    cleaning = steps.start_other(cleanup_training)
    assert steps.wait(cleaning) == 0, steps.log(cleaning)
    assert "has succeeded and is kept" in steps.log(cleaning) and "is deleted" in steps.log(cleaning)
    assert steps.wait(second) != 0, "its training was deleted"
    steps.cluster.wait("the run to be deleted", lambda: len(steps.jobsets()) == 1)
    missing = steps.start_other(wait_for_training, run="nowhere", timeout=1)
    assert steps.wait(missing) == 2 and "'nowhere' is not in namespace" in steps.log(missing)


@dsl.component(base_image="python:3.12", install_kfp_package=False)
def shares(words: str, notes: dsl.Output[dsl.Artifact]) -> int:
    """Writes an artifact and its metadata."""
    import os
    from pathlib import Path

    rank = os.environ["STEPSET_NODE_RANK"]
    Path(notes.path).write_text(f"{words} of node {rank}")
    notes.metadata["nodes"] = os.environ["STEPSET_NUM_NODES"]
    return len(words)


def test_outputs_of_a_distributed_component_are_copied_through_a_shared_volume(steps: Steps) -> None:
    many = distribute(
        shares,
        num_nodes=2,
        procs_per_node=1,
        framework="plain",
        image=steps.cluster.image,
        env=steps.path(),
        pod_template=steps.template(),
        shared_dir=str(steps.shared),
    )
    pod = steps.start_other(many, words="seven")
    assert steps.wait(pod) == 0, steps.log(pod)
    out = steps.out(pod)
    assert (out / "notes").read_text() == "seven of node 0"
    output = json.loads((out / "executor_output.json").read_text())
    assert output["parameterValues"] == {"Output": 5}
    (artifact,) = output["artifacts"]["notes"]["artifacts"]
    assert artifact["uri"] == str(out / "notes") and artifact["metadata"] == {"nodes": "2"}
    assert not list((steps.shared / ".stepset").iterdir()), "the volume is empty again"


def test_a_pipeline_on_a_laptop_trains_on_the_cluster(
    cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(
        "import os, pathlib\nif os.environ['STEPSET_NODE_RANK'] == '0':\n"
        "    pathlib.Path(os.environ['STEPSET_RESULT_FILE']).write_text('{\"accuracy\": 0.5}')\n"
    )
    with runs_in(cluster, namespace, tmp_path) as runs:
        monkeypatch.setenv("KUBECONFIG", str(runs.kubeconfig))
        ran = run_pipeline(
            one_step(
                lambda: distributed_train(
                    base_dir=tmp_path,
                    backend="kubernetes",
                    namespace=namespace,
                    framework="plain",
                    num_nodes=2,
                    script="train.py",
                    image=cluster.image,
                    pod_template=cluster.pod_template(),
                )
            ),
            tmp_path / "out",
        )
    assert ran.error is None
    assert json.loads(ran.output("distributed-train", "result").read_text()) == {"accuracy": 0.5}
    (jobset,) = cluster.get("jobsets", namespace)["items"]
    assert jobset["metadata"]["name"] == ran.output("distributed-train", "run").read_text()
