"""A checkpoint directory that several runs of a pipeline would use is reported when the pipeline is compiled."""

import pytest
from kfp import dsl

from stepset_kfp import distribute, distributed_train

JOB = {"framework": "torch", "module": "train", "image": "registry.example/a:1", "backend": "local"}
WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER
CONFIG = dsl.PipelineConfig(workspace=dsl.WorkspaceConfig("1Gi"))


@dsl.component(base_image="registry.example/own:1", install_kfp_package=False)
def own(data: str) -> str:
    return data


def reported(log: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in log.messages if "checkpoint_dir" in text]


@pytest.mark.parametrize("inputs", [{"checkpoint_dir": f"{WORKSPACE}/c"}, {"job": {"checkpoint_dir": "/ckpt"}}])
def test_a_constant_directory_in_a_loop_is_reported(caplog: pytest.LogCaptureFixture, inputs: dict) -> None:
    @dsl.pipeline(name="sweep", pipeline_config=CONFIG)
    def sweep() -> None:
        with dsl.ParallelFor(["0.1", "0.2"]) as rate:
            distributed_train(**{**JOB, **inputs}, name="fit", args=["--lr", rate])

    assert reported(caplog) == [
        "task distributed-train (fit): checkpoint_dir is the same in all iterations of dsl.ParallelFor, so a run"
        " continues from the checkpoints of another run; add the item of the loop, for example"
        ' checkpoint_dir=f"{DIRECTORY}/{item}"'
    ]


def test_a_parameter_and_the_item_of_one_of_two_loops_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="sweep")
    def sweep(home: str = "/ckpt") -> None:
        with dsl.ParallelFor(["0.1", "0.2"]) as rate:
            distributed_train(**JOB, args=["--lr", rate], checkpoint_dir=home)
            with dsl.ParallelFor(["a", "b"]) as data:
                distributed_train(**JOB, args=["--data", data], checkpoint_dir=f"{home}/{rate}")

    assert [text.partition(":")[0] for text in reported(caplog)] == [
        "task distributed-train",
        "task distributed-train-2",
    ]


def test_a_distributed_component_in_a_loop_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="sweep")
    def sweep() -> None:
        with dsl.ParallelFor(["0.1", "0.2"]) as rate:
            distribute(own, checkpoint_dir="/ckpt", backend="local")(data=rate)

    (text,) = reported(caplog)
    assert text.startswith("task own: ") and "pass the directory to an input of the function" in text


def test_a_directory_with_the_item_of_the_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="sweep", pipeline_config=CONFIG)
    def sweep() -> None:
        with dsl.ParallelFor(["0.1", "0.2"]) as rate:
            distributed_train(**JOB, checkpoint_dir=f"{WORKSPACE}/a/{rate}")
            made = own(data=rate)
            distributed_train(**JOB, checkpoint_dir=made.output)
        with dsl.ParallelFor([{"lr": "0.1", "run": "a"}, {"lr": "0.2", "run": "b"}]) as item:
            distributed_train(**JOB, checkpoint_dir=f"{WORKSPACE}/b/{item.run}")

    assert reported(caplog) == []


def test_a_directory_with_the_item_of_a_loop_over_a_field_of_another_item(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="nested")
    def nested() -> None:
        with (
            dsl.ParallelFor([{"runs": [{"id": "1"}, {"id": "2"}]}]) as outer,
            dsl.ParallelFor(outer.runs) as inner,
        ):
            distributed_train(**JOB, checkpoint_dir=inner)
            distributed_train(**JOB, checkpoint_dir=f"/ckpt/a/{inner}")
            distributed_train(**JOB, checkpoint_dir=f"/ckpt/b/{inner.id}")
            distributed_train(**JOB, checkpoint_dir="/ckpt/c")

    assert [text.partition(";")[0] for text in reported(caplog)] == [
        "task distributed-train-4: checkpoint_dir is the same in all iterations of dsl.ParallelFor, so a run continues"
        " from the checkpoints of another run"
    ]


def test_a_directory_of_two_tasks_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="two")
    def two(home: str = "/ckpt") -> None:
        distributed_train(**JOB, name="first", checkpoint_dir=f"{home}/c")
        distributed_train(**JOB, checkpoint_dir=f"{home}/d")
        distributed_train(**JOB, name="second", checkpoint_dir=f"{home}/c/")

    assert reported(caplog) == [
        "task distributed-train-3 (second): checkpoint_dir is also that of task distributed-train (first), so the later"
        " run continues from the checkpoints of the earlier run; give each task its own directory, unless this is"
        " intended"
    ]


@pytest.mark.parametrize("placeholder", [dsl.PIPELINE_TASK_NAME_PLACEHOLDER, dsl.PIPELINE_TASK_ID_PLACEHOLDER])
def test_a_directory_with_the_name_of_its_task_is_not_reported(
    caplog: pytest.LogCaptureFixture, placeholder: str
) -> None:
    @dsl.pipeline(name="two")
    def two() -> None:
        distributed_train(**JOB, checkpoint_dir=f"/ckpt/{placeholder}")
        distributed_train(**JOB, checkpoint_dir=f"/ckpt/{placeholder}")

    assert reported(caplog) == []


def test_the_branches_of_a_condition_may_use_the_same_directory(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.pipeline(name="branches")
    def branches(large: bool = False) -> None:
        with dsl.If(large == True):  # noqa: E712  # KFP overloads ==
            distributed_train(**JOB, num_nodes=2, checkpoint_dir="/ckpt")
        with dsl.Else():
            distributed_train(**JOB, num_nodes=1, checkpoint_dir="/ckpt")

    assert reported(caplog) == []
