"""A checkpoint_dir that is on no volume is reported when the pipeline is compiled for a cluster."""

from collections.abc import Callable

import pytest
from kfp import dsl, kubernetes

from stepset_kfp import distribute, distributed_train

JOB = {"framework": "torch", "module": "train", "image": "registry.example/a:1", "name": "fit"}
NOTE = (
    "checkpoint_dir: /ckpt/fit is not on a writable volume that outlives the pods, so the checkpoints are lost when a"
    " pod is replaced; add storage: [{path: /ckpt/fit, claim: NAME}], mount a claim on the task, or use a directory of"
    " dsl.WORKSPACE_PATH_PLACEHOLDER"
)


@dsl.component(base_image="registry.example/own:1", install_kfp_package=False)
def own(data: str) -> str:
    return data


def notes(log: pytest.LogCaptureFixture, create: Callable[[str], object]) -> list[str]:
    """Compiles a pipeline, and returns the notes about checkpoint_dir."""

    @dsl.pipeline(name="volumes", pipeline_config=dsl.PipelineConfig(workspace=dsl.WorkspaceConfig("1Gi")))
    def pipeline(home: str = "/ckpt") -> None:
        create(home)
        own(data=dsl.WORKSPACE_PATH_PLACEHOLDER)

    return [text for text in log.messages if "checkpoint_dir" in text]


@pytest.mark.parametrize(
    "inputs",
    [
        {"checkpoint_dir": "/ckpt/fit"},
        {"job": {"checkpoint_dir": "/ckpt/fit", "args": [dsl.PIPELINE_JOB_ID_PLACEHOLDER]}},
        {"checkpoint_dir": "/ckpt/fit", "storage": [{"path": "/ckpt", "claim": "c", "read_only": True}]},
    ],
)
def test_a_directory_on_no_volume_is_reported(caplog: pytest.LogCaptureFixture, inputs: dict) -> None:
    assert notes(caplog, lambda _: distributed_train(**JOB, **inputs)) == [f"task distributed-train (fit): {NOTE}"]


def test_a_directory_of_a_distributed_component_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    fit = distribute(own, checkpoint_dir="/ckpt/fit", shared_dir="/mnt")
    assert notes(caplog, lambda _: fit(data="a")) == [
        f"task own: {NOTE.removesuffix('use a directory of dsl.WORKSPACE_PATH_PLACEHOLDER')}omit checkpoint_dir, and"
        " pass a directory of the workspace to an input of the function"
    ]


@pytest.mark.parametrize(
    "invalid",
    [
        {"storage": [{"claim": "checkpoints"}]},
        {"storage": ["/ckpt"]},
        {"storage": {"path": "/ckpt"}},
        {"storage": [{"path": 1}]},
        {"pod_template": "spec"},
    ],
)
def test_invalid_volumes_that_the_step_checks_are_no_volumes(caplog: pytest.LogCaptureFixture, invalid: dict) -> None:
    @dsl.pipeline(name="volumes")
    def pipeline(env: dict) -> None:  # the compilation does not check the job, because env is known only at run time
        distributed_train(**JOB, job=invalid, checkpoint_dir="/ckpt/fit", env=env)

    assert [text for text in caplog.messages if "checkpoint_dir" in text] == [f"task distributed-train (fit): {NOTE}"]


def test_a_claim_that_is_mounted_elsewhere_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    found = notes(
        caplog,
        lambda _: kubernetes.mount_pvc(distributed_train(**JOB, checkpoint_dir="/ckpt/fit"), "claim", "/data"),
    )
    assert found == [f"task distributed-train (fit): {NOTE}"]


@pytest.mark.parametrize(
    "create",
    [
        lambda home: distributed_train(**JOB, checkpoint_dir=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/fit"),
        lambda home: distributed_train(**JOB, checkpoint_dir="/kfp-workspace/fit"),
        lambda home: distribute(own, checkpoint_dir="/kfp-workspace/fit")(data=dsl.WORKSPACE_PATH_PLACEHOLDER),
        lambda home: distributed_train(**JOB, checkpoint_dir=home),
        lambda home: distributed_train(**JOB, checkpoint_dir="/ckpt/fit", backend="local"),
        lambda home: distributed_train(
            **JOB, checkpoint_dir="/ckpt/fit", storage=[{"path": "/ckpt", "claim": "checkpoints"}]
        ),
        lambda home: distributed_train(**JOB, checkpoint_dir="/ckpt/fit", storage=[{"path": home, "claim": "c"}]),
        # kfp-kubernetes mounts the claim after the creation of the task.
        lambda home: kubernetes.mount_pvc(distributed_train(**JOB, checkpoint_dir="/ckpt/fit"), "claim", "/ckpt"),
    ],
)
def test_a_directory_on_a_volume_is_not_reported(
    caplog: pytest.LogCaptureFixture, create: Callable[[str], object]
) -> None:
    assert notes(caplog, create) == []
