"""Settings that have no effect on the training pods, or contradict the job, are reported at compile time."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from kfp import dsl, kubernetes

from stepset.errors import BadInputError
from stepset_kfp import distribute, distributed_train

JOB: dict[str, Any] = {"framework": "torch", "module": "train", "image": "registry.example/a:1", "name": "fit"}
PLACE = "task distributed-train (fit): "
UNPUBLISHED = "is not published, so the step cannot start on a cluster"


@dsl.component(base_image="registry.example/own:1", install_kfp_package=False)
def own(data: str) -> str:
    return data


def notes(
    log: pytest.LogCaptureFixture,
    settings: Callable[[dsl.PipelineTask], object],
    create: Callable[[], dsl.PipelineTask] = lambda: distributed_train(**JOB),
) -> list[str]:
    """Compiles a pipeline, and returns the notes except that about the step's image."""

    @dsl.pipeline(name="settings")
    def pipeline() -> None:
        settings(create())

    return [text for text in log.messages if UNPUBLISHED not in text]


@pytest.mark.parametrize(
    ("settings", "function", "inputs"),
    [
        (
            lambda task: kubernetes.set_image_pull_secrets(task, ["registry"]),
            "set_image_pull_secrets",
            {"pod_template": {"imagePullSecrets": [{"name": "registry"}]}},
        ),
        (
            lambda task: kubernetes.set_image_pull_policy(task, "Always"),
            "set_image_pull_policy",
            {"pod_template": {"containers": [{"name": "node", "imagePullPolicy": "Always"}]}},
        ),
        (lambda task: kubernetes.empty_dir_mount(task, "shm", "/dev/shm"), "empty_dir_mount", {"shm": "1Gi"}),
        (lambda task: kubernetes.add_pod_label(task, "team", "a"), "add_pod_label", {"labels": {"team": "a"}}),
        (
            lambda task: kubernetes.add_pod_annotation(task, "team", "a"),
            "add_pod_annotation",
            {"annotations": {"team": "a"}},
        ),
        (lambda task: kubernetes.set_timeout(task, 3600), "set_timeout", {"deadline": "1h"}),
        (
            lambda task: kubernetes.set_security_context(task, run_as_user=1000),
            "set_security_context",
            {"security": "restricted"},
        ),
    ],
)
def test_a_setting_that_kfp_does_not_pass_on_is_reported(
    caplog: pytest.LogCaptureFixture, settings: Callable[[dsl.PipelineTask], object], function: str, inputs: dict
) -> None:
    (text,) = notes(caplog, settings)
    assert text.startswith(f"{PLACE}{function} does not apply to the training pods; for these pods, use ")
    caplog.clear()
    assert notes(caplog, settings, lambda: distributed_train(**JOB, **inputs)) == []


@pytest.mark.parametrize("inputs", [{}, {"shm": "1Gi"}])
def test_an_empty_directory_at_another_path_is_reported_even_with_shm(
    caplog: pytest.LogCaptureFixture, inputs: dict
) -> None:
    texts = notes(
        caplog,
        lambda task: kubernetes.empty_dir_mount(task, "scratch", "/scratch"),
        lambda: distributed_train(**JOB, **inputs),
    )
    assert texts == [
        f"{PLACE}empty_dir_mount does not apply to the training pods; for these pods, use a volume in pod_template"
    ]


@pytest.mark.parametrize(("deadline", "reported"), [("2h", True), (7200, True), ("1h", False), (None, False)])
def test_a_timeout_that_ends_the_step_before_the_deadline_of_the_training_is_reported(
    caplog: pytest.LogCaptureFixture, deadline: object, reported: bool
) -> None:
    texts = notes(
        caplog,
        lambda task: kubernetes.set_timeout(task, 3600),
        lambda: distributed_train(**JOB, job={"deadline": deadline} if deadline else {}),
    )
    found = [text for text in texts if text.startswith(f"{PLACE}set_timeout ends the step after 3600 s, but the dead")]
    assert len(found) == reported
    assert all(f"the deadline of the training is {deadline}, and" in text for text in found)


def test_a_node_selector_of_the_task_that_the_job_replaces_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def select(task: dsl.PipelineTask) -> None:
        kubernetes.add_node_selector(task, "pool", "a100")
        kubernetes.add_node_selector(task, "zone", "b")

    scheduling = {"node_selector": {"pool": "h100", "zone": "b"}}
    assert notes(caplog, select, lambda: distributed_train(**JOB, scheduling=scheduling)) == [
        f"{PLACE}pool has another value in scheduling.node_selector than in a setting of the task; the training pods"
        " use scheduling.node_selector"
    ]
    caplog.clear()
    scheduling = {"node_selector": {"disk": "ssd"}}
    assert notes(caplog, select, lambda: distributed_train(**JOB, scheduling=scheduling)) == []


def test_a_variable_that_stepset_sets_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def reserved(task: dsl.PipelineTask) -> None:
        task.set_env_variable("STEPSET_RUN", "a").set_env_variable("MODE", "fast")
        kubernetes.use_secret_as_env(task, "hub", {"token": "STEPSET_JOB"})

    problem = "reserved, because torch jobs get it from stepset; leave it out, or override it with {value: ..., overri"
    creations = [
        (f"{PLACE}", lambda: distributed_train(**JOB, args=["--epochs", 3], log_ranks=0)),
        ("task own: ", lambda: distribute(own, shared_dir="/mnt")(data="a")),
    ]
    for place, create in creations:
        with pytest.raises(BadInputError) as raised:
            notes(caplog, reserved, create)
        first, second = str(raised.value).splitlines()
        assert first.startswith(f"{place}setting of the task: env.STEPSET_JOB: {problem}")
        assert second.startswith(f"{place}setting of the task: env.STEPSET_RUN: {problem}")
    with pytest.raises(BadInputError, match="env: STEPSET_RUN is reserved, because torch jobs get it from stepset"):
        notes(caplog, lambda task: kubernetes.use_config_map_as_env(task, "settings", {"run": "STEPSET_RUN"}))
    caplog.clear()
    env = {name: {"value": "b", "override": True} for name in ("STEPSET_RUN", "STEPSET_JOB")}
    (text,) = notes(caplog, reserved, lambda: distributed_train(**JOB, env=env))
    assert text.startswith(f"{PLACE}STEPSET_JOB, STEPSET_RUN are set both in env and by a setting of the task")


@pytest.mark.parametrize(
    ("modes", "nodes", "refused"),
    [(["ReadWriteOnce"], 2, True), (["ReadWriteOnce"], 1, False), (["ReadWriteMany"], 2, False)],
)
def test_a_new_claim_that_only_one_of_several_nodes_can_mount_is_an_error(
    caplog: pytest.LogCaptureFixture, modes: list[str], nodes: int, refused: bool
) -> None:
    def create() -> dsl.PipelineTask:
        claim = kubernetes.CreatePVC(pvc_name_suffix="-data", access_modes=modes, size="1Gi")
        return kubernetes.mount_pvc(distributed_train(**JOB, num_nodes=nodes), claim.outputs["name"], "/data")

    expected = (
        f"{PLACE}mount_pvc: 2 nodes mount the claim of task createpvc, but it is ReadWriteOnce; create it with"
        ' access_modes=["ReadWriteMany"]'
    )
    with pytest.raises(BadInputError) if refused else nullcontext() as raised:
        assert notes(caplog, lambda task: task, create) == []
    if raised is not None:
        assert str(raised.value) == expected


def test_settings_of_a_distributed_component_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    fit = distribute(own, shared_dir="/mnt")
    texts = notes(caplog, lambda task: kubernetes.set_timeout(task, 60), lambda: fit(data="a"))
    assert texts[-1] == (
        'task own: set_timeout does not apply to the training pods; for these pods, use deadline="12h"'
    )


def test_the_image_of_a_distributed_component_is_not_that_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    def set_image(task: dsl.PipelineTask) -> None:
        task.set_container_image("other:1")

    texts = notes(caplog, set_image, lambda: distribute(own, shared_dir="/mnt")(data="a"))
    assert texts == [
        "task own: set_container_image changes the image of the step, which must contain stepset, but not the image of"
        ' the training pods; for these pods, use image="REGISTRY/NAME:TAG"'
    ]
    caplog.clear()
    assert notes(caplog, set_image, lambda: distribute(own, shared_dir="/mnt", image="own:2")(data="a")) == []
    assert notes(caplog, set_image) == []


def test_retries_of_the_step_are_reported_unless_the_training_restarts(caplog: pytest.LogCaptureFixture) -> None:
    def retry(task: dsl.PipelineTask) -> None:
        task.set_retry(2)

    assert notes(caplog, retry) == [
        f"{PLACE}a server with KFP 2.17 or newer does not apply set_retry to a step whose training fails, but older"
        ' servers retry the step; to restart the training on every server, use restart={"max_restarts": 3}'
    ]
    caplog.clear()
    assert notes(caplog, retry, lambda: distributed_train(**JOB, restart={"max_restarts": 3})) == []


def test_a_variable_of_the_task_that_env_replaces_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def settings(task: dsl.PipelineTask) -> None:
        task.set_env_variable("A", "1").set_env_variable("B", "1")
        kubernetes.use_secret_as_env(task, "hub", {"token": "TOKEN"})

    assert notes(caplog, settings, lambda: distributed_train(**JOB, env={"A": "2", "C": "2"})) == [
        f"{PLACE}A is set both in env and by a setting of the task; the training pods use env"
    ]
    caplog.clear()
    (text,) = notes(caplog, settings, lambda: distributed_train(**JOB, job={"env": {"B": "2", "TOKEN": "2"}}))
    assert text.startswith(f"{PLACE}B, TOKEN are set both in env")


@pytest.mark.parametrize(
    ("resources", "reported"), [({"gpus": 4}, True), ({"memory": "8Gi", "shm": "1Gi"}, True), ({"shm": "1Gi"}, False)]
)
def test_resources_of_the_task_that_the_job_replaces_are_reported(
    caplog: pytest.LogCaptureFixture, resources: dict, reported: bool
) -> None:
    texts = notes(
        caplog,
        lambda task: task.set_memory_limit("4Gi").set_cpu_limit("2"),
        lambda: distributed_train(**JOB, resources_per_node=resources),
    )
    note = "resources_per_node replaces all resources of the task, so cpu_limit, memory_limit do not apply"
    assert [text.partition(";")[0] for text in texts] == [f"{PLACE}{note}"] * reported


def test_settings_that_kfp_passes_on_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    def settings(task: dsl.PipelineTask) -> None:
        task.set_cpu_limit("2").set_env_variable("MODE", "fast")
        kubernetes.mount_pvc(task, "claim", "/data")
        kubernetes.use_secret_as_env(task, "hub", {"token": "TOKEN"})
        kubernetes.add_node_selector(task, "disktype", "ssd")

    assert notes(caplog, settings) == []
