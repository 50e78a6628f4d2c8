"""An output that KFP's local runner would replace by the item of a loop is reported when the pipeline is defined."""

from pathlib import Path

import pytest
from kfp import dsl, local

from stepset_kfp import distributed_train


@dsl.component(base_image="registry.example/own:1")
def prepare() -> str:
    return "/data"


def reported(log: pytest.LogCaptureFixture) -> list[str]:
    @dsl.pipeline(name="sweep")
    def sweep() -> None:
        data = prepare()
        distributed_train(framework="plain", command=["train"], args=[data.output], image="registry.example/a:1")
        with dsl.ParallelFor(["0.1", "0.2"]) as rate:
            words = [data.output, prepare().output, rate]
            distributed_train(framework="plain", command=["train"], args=words, image="registry.example/a:1")

    return [text for text in log.messages if "local runner replaces" in text]


def test_the_output_of_a_task_outside_of_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))
    assert reported(caplog) == [
        "task distributed-train-2: KFP's local runner replaces prepare-Output by the item of dsl.ParallelFor; pass the"
        " value without the output, and call after()"
    ]


def test_nothing_is_reported_for_a_server(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(caplog) == []


def test_nothing_is_reported_for_the_item_of_a_loop_over_an_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))

    @dsl.component(base_image="registry.example/own:1")
    def rates() -> list:
        return [{"lr": 0.1}, {"lr": 0.2}]

    @dsl.pipeline(name="sweep")
    def sweep() -> None:
        with dsl.ParallelFor(rates().output) as rate:
            distributed_train(framework="plain", command=["train"], args=[rate, rate.lr], image="registry.example/a:1")

    assert not [text for text in caplog.messages if "local runner replaces" in text]
