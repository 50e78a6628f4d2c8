"""Problems of a step's input, account or cluster are reported in the step's log, and no objects remain."""

import time
from typing import Any

import pytest

from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.cluster.remedies import paste, remedy
from tests.kfp.node_names import step_node
from tests.kfp.steps import WAITS, Steps

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"framework": "pytroch", "module": "train"}, "did you mean 'torch'?"),
        ({"script": "train.py", "module": "train"}, "script and module are given"),
        ({"module": "train"}, "image: is missing"),
        ({"module": "train", "image": "i:1", "num_nodes": -2}, "num_nodes: -2"),
        ({"module": "train", "image": "i:1", "on_interrupt": "pause"}, "use one of suspend, delete, leave"),
        ({"module": "train", "image": "i:1", "target": "jobsets"}, "target: 'jobsets' is not known"),
        ({"module": "train", "image": "i:1", "shm": "lots"}, "'lots'"),
        ({"module": "train", "image": "i:1", "labels": {"a b": "c"}}, "labels"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_ends_the_step_with_a_message(steps: Steps, inputs: dict[str, Any], message: str) -> None:
    pod = steps.start_other(component, **inputs)
    assert steps.wait(pod) == 2, steps.log(pod)
    log = steps.log(pod)
    assert message in log
    assert "Traceback" not in log
    assert steps.left() == []


def test_a_name_used_by_another_owner_is_an_error(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    (home / "go").parent.mkdir(parents=True)
    (home / "go").touch()
    first = steps.start(WAITS, checkpoint_dir=str(home))
    assert steps.wait(first) == 0, steps.log(first)
    (jobset,) = steps.jobsets()
    name = jobset["metadata"]["name"]
    steps.cluster.kubectl("label", "jobset", name, "-n", steps.namespace, "--overwrite", "stepset.dev/owner-hash=other")
    before = steps.left()
    second = steps.start(WAITS, checkpoint_dir=str(home))
    assert steps.wait(second) == 2
    assert "is owned by another caller" in steps.log(second)
    assert steps.left() == before, "the other owner's run is unchanged, and no object was created"


@pytest.mark.parametrize(
    ("target", "missing"),
    [
        ("jobset", "create, patch, delete jobsets.jobset.x-k8s.io"),
        ("trainjob", "create, patch, delete trainjobs.trainer.kubeflow.org"),
        ("job", "create, patch, delete jobs.batch"),
        ("statefulset", "create, patch, delete statefulsets.apps"),
    ],
)
def test_without_the_role_the_step_names_each_missing_verb_and_the_command_that_grants_it(
    bare_steps: Steps, target: str, missing: str
) -> None:
    steps = bare_steps
    steps.prepare(role=False)
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "pipeline-runner", "namespace": steps.namespace}],
    }
    steps.cluster.apply(reader, steps.namespace)
    home = steps.shared / "checkpoints"
    pod = steps.start(WAITS, checkpoint_dir=str(home), target=target)
    assert steps.wait(pod) == 3
    log = steps.log(pod)
    assert missing in log
    assert "Traceback" not in log
    assert steps.left() == []

    paste(steps.cluster, remedy(log))
    home.mkdir()
    (home / "go").touch()
    second = steps.start(WAITS, checkpoint_dir=str(home), target=target, node=step_node(try_number=1))
    assert steps.wait(second) == 0, steps.log(second)


def test_an_account_without_permissions_gets_one_line_with_the_command(
    bare_steps: Steps,
) -> None:
    bare_steps.prepare(role=False)
    pod = bare_steps.start(WAITS, checkpoint_dir=str(bare_steps.shared / "checkpoints"))
    assert bare_steps.wait(pod) == 3
    log = bare_steps.log(pod)
    create = "which might not exist (stepset rbac --create-namespace also creates it)"
    where = f"in namespace {bare_steps.namespace!r}, {create}; "
    assert f"may not create, read or delete runs {where}" in log
    assert f"--account {bare_steps.namespace}/pipeline-runner | kubectl apply" in log
    assert "Traceback" not in log
    assert bare_steps.left() == []


def test_a_volume_for_one_node_is_refused_if_several_nodes_mount_it(steps: Steps) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "run-kfp-workspace"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    steps.cluster.apply(claim, steps.namespace)
    task_config = {
        "volumes": [{"name": "kfp-workspace", "persistentVolumeClaim": {"claimName": "run-kfp-workspace"}}],
        "volumeMounts": [{"name": "kfp-workspace", "mountPath": "/data"}],
    }
    pod = steps.start(WAITS, checkpoint_dir="/data/c", task_config=task_config)
    assert steps.wait(pod) == 2
    assert "PersistentVolumeClaim run-kfp-workspace is ReadWriteOnce, but 2 nodes mount it" in steps.log(pod)
    assert steps.left() == []


def test_a_queue_that_does_not_exist_is_refused(steps: Steps) -> None:
    pod = steps.start(WAITS, queue_name="nope", checkpoint_dir="/tmp/c")
    assert steps.wait(pod) == 2
    log = steps.log(pod)
    assert f"LocalQueue 'nope' does not exist in namespace {steps.namespace}; none exists; create it" in log
    assert steps.left() == []


def test_a_missing_image_is_reported_until_the_startup_timeout_ends_the_step(steps: Steps) -> None:
    pulled = {"spec": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]}}
    image = "nowhere.example/no:1"
    pod = steps.start(WAITS, image=image, checkpoint_dir="/tmp/c", startup_timeout=40, pod_template=pulled)
    assert steps.wait(pod) == 3
    log = steps.log(pod)
    assert image in log and "gave up after 40 s" in log
    (jobset,) = steps.jobsets()
    assert jobset["spec"]["suspend"] is True, "it uses no resources; it is deleted with the Workflow"
    steps.cluster.wait("its pods to be deleted", lambda: not [each for each in steps.left() if each.startswith("Pod/")])


def test_an_invalid_image_name_ends_the_step_at_once_without_a_startup_timeout(steps: Steps) -> None:
    started = time.monotonic()
    pod = steps.start(WAITS, image="Nowhere/No:1", checkpoint_dir="/tmp/c", startup_timeout=0)
    assert steps.wait(pod) == 3
    log = steps.log(pod)
    assert "InvalidImageName" in log and "waiting cannot resolve this" in log
    assert time.monotonic() - started < 100, "seconds instead of the half hour for which a step waits for an image"
    (jobset,) = steps.jobsets()
    assert jobset["spec"]["suspend"] is True


def test_the_step_waits_for_a_missing_secret(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    secret = {"secret": "hub", "key": "token"}
    pod = steps.start(WAITS, checkpoint_dir=str(home), env={**steps.path(), "HF_TOKEN": secret}, log_ranks="all")
    steps.wait_for_line(pod, 'secret "hub" not found')
    steps.cluster.kubectl("create", "secret", "generic", "hub", "--from-literal=token=hush", "-n", steps.namespace)
    for rank in (0, 1):
        steps.wait_for_line(pod, f"[rank {rank}] begins from nothing")
    (home / "go").touch()
    assert steps.wait(pod) == 0, steps.log(pod)


def test_a_step_whose_job_has_changed_follows_the_run_that_exists(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    other = steps.start(WAITS, checkpoint_dir=str(home), env={"LR": "0.1"}, name="other", num_nodes=3)
    steps.wait_for_line(other, "reattaching to it")
    (home / "go").touch()
    assert (steps.wait(first), steps.wait(other)) == (0, 0), steps.log(other)
    assert len(steps.jobsets()) == 1
