"""The compilation of a pipeline checks what is known of a job, as `stepset validate` does."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, local

from stepset.errors import BadInputError
from stepset_kfp import distribute, distributed_train

IMAGE = "registry.example/train:1"
PLACE = "task distributed-train: "
RESTARTED = {"module": "train", "restart": {"max_restarts": 1}}
TORCHRUN = ["torchrun", "--nnodes=4", "train.py"]


def compiled(tmp_path: Path, define: Callable[..., Any]) -> dict[str, Any]:
    """Compiles a pipeline whose body is `define(n, word, flag, words, settings)`; returns its tasks."""

    @dsl.pipeline(name="checks")
    def pipeline(n: int = 2, word: str = "x", flag: bool = False, words: list = [], settings: dict = {}):  # noqa: B006
        define(n, word, flag, words, settings)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    documents = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    tasks: dict[str, Any] = next(documents)["root"]["dag"]["tasks"]
    return tasks


def problems(tmp_path: Path, define: Callable[..., Any]) -> list[str]:
    """Returns the lines of the error with which the compilation ends; none if it succeeds."""
    try:
        compiled(tmp_path, define)
    except BadInputError as error:
        return str(error).splitlines()
    return []


def validated(tmp_path: Path, target: str, job: dict[str, Any]) -> list[str]:
    """Returns the lines with which `stepset validate` refuses a job."""
    (tmp_path / "job.json").write_text(json.dumps({"image": IMAGE, **job}))
    words = [sys.executable, "-m", "stepset", "validate", "job.json", "--target", target]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout
    return [line.removeprefix("stepset: ").removeprefix("job.json: ") for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("target", "job", "field"),
    [
        ("jobset", {"num_nodes": 2, "command": TORCHRUN}, "command: --nnodes=4 of torchrun contradicts num_nodes: 2"),
        ("jobset", {"num_nodes": 2, "command": ["torchrun"], "args": ["--nnodes=4", "t.py"]}, "args: --nnodes=4"),
        (
            "jobset",
            {"module": "train", "framework": {"kind": "torch", "launcher": "none"}, "env": {"RANK": "1"}},
            "env.RANK: reserved",
        ),
        ("job", RESTARTED, "restart.max_restarts: target job cannot"),
        ("statefulset", {"module": "train", "deadline": "1h", "ttl": "1h"}, "deadline: a StatefulSet has none"),
        ("jobset", {"module": "train", "scheduling": {"gang": "kueue"}}, "scheduling.gang: kueue needs a queue"),
        ("jobset", {"module": "train", "pod_template": {"containerz": []}}, "pod_template: unknown field"),
    ],
)
def test_the_error_is_that_of_validate_at_the_task(
    tmp_path: Path, target: str, job: dict[str, Any], field: str
) -> None:
    expected = validated(tmp_path, target, job)
    assert expected[0].startswith(field)
    found = problems(tmp_path, lambda *_: distributed_train(image=IMAGE, target=target, **job))
    assert found == [f"{PLACE}{line}" for line in expected]
    assert problems(tmp_path, lambda *_: distributed_train(job=job, target=target)) == found


def test_the_place_is_the_name_of_the_task_in_the_pipeline(tmp_path: Path) -> None:
    def define(*_: Any) -> None:
        for number in range(3):
            distributed_train(module="train", name=f"job-{number}", on_interrupt="suspend" if number < 2 else "pause")

    (found,) = problems(tmp_path, define)
    assert found.startswith("task distributed-train-3 (job-2): on_interrupt: 'pause' is not known")
    tasks = compiled(tmp_path, lambda *_: [distributed_train(module="train") for _ in range(3)])
    assert list(tasks) == ["distributed-train", "distributed-train-2", "distributed-train-3"]


@pytest.mark.parametrize(
    "define",
    [
        lambda n, word, *_: distributed_train(num_nodes=2, command=[*TORCHRUN, word], env={"A": word}),
        lambda n, word, *_: distributed_train(num_nodes=2, command=TORCHRUN, args=["--data", f"{word}/x", n]),
        lambda n, word, *_: distributed_train(num_nodes=2, command=TORCHRUN, checkpoint_dir=f"{word}/x", image=word),
        lambda n, word, *_: distributed_train(
            num_nodes=2, command=TORCHRUN, checkpoint_dir=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/x"
        ),
        lambda n, word, flag, words, *_: distributed_train(num_nodes=2, command=TORCHRUN, args=words, target=word),
        lambda n, word, *_: distributed_train(num_nodes=2, command=TORCHRUN, resources_per_node={"gpus": n}),
        lambda n, word, *_: distributed_train(
            job={"num_nodes": 2, "command": TORCHRUN, "labels": {"a": word}}, restart={"max_restarts": n}
        ),
        lambda n, word, flag, words, settings: distributed_train(
            num_nodes=2, command=TORCHRUN, resources_per_node=settings, labels=settings, procs_per_node=n
        ),
    ],
)
def test_constants_are_checked_beside_values_that_are_known_only_at_run_time(
    tmp_path: Path, define: Callable[..., Any]
) -> None:
    (found,) = problems(tmp_path, define)
    assert found.startswith(f"{PLACE}command: --nnodes=4 of torchrun contradicts num_nodes: 2")


@pytest.mark.parametrize(
    "define",
    [
        lambda n, *_: distributed_train(num_nodes=n, command=TORCHRUN),
        lambda n, *_: distributed_train(num_nodes=2, command=["torchrun", "--nnodes", n, "train.py"]),
        lambda n, *_: distributed_train(num_nodes=2, command=["torchrun", f"--nnodes={n}", "train.py"]),
        lambda n, word, *_: distributed_train(num_nodes=2, command=[word, "--nnodes=4", "train.py"]),
        lambda n, word, flag, words, *_: distributed_train(num_nodes=2, command=words, args=["--nnodes=4", "t.py"]),
        lambda n, word, *_: distributed_train(framework=word, num_nodes=2, command=TORCHRUN),
        lambda n, word, *_: distributed_train(**RESTARTED, target=word),
        lambda n, word, *_: distributed_train(module="train", target="job", restart={"max_restarts": n}),
        lambda n, word, flag, words, settings: distributed_train(
            network=settings, num_nodes=2, command=["torchrun", "--master-port=1234", "train.py"]
        ),
        lambda n, word, flag, words, settings: distributed_train(job=settings, num_nodes=2),
        lambda n, word, *_: distributed_train(module="train", scheduling={"gang": "kueue"}, queue_name=word),
        lambda n, word, *_: distributed_train(module="train", env={"A": {"secret": word, "key": "a"}}),
        lambda n, word, *_: distributed_train(module=word, checkpoint_dir=word, deadline=word, ttl=f"{n}h", shm=word),
        lambda n, word, *_: distributed_train(module="train", storage=[{"path": word, "claim": word}]),
        lambda n, word, *_: distributed_train(module="train", procs_per_node=f"{n}", agent=False),
    ],
)
def test_values_that_are_known_only_at_run_time_are_not_checked(tmp_path: Path, define: Callable[..., Any]) -> None:
    assert problems(tmp_path, define) == []


def test_the_settings_of_the_task_may_add_accelerators(tmp_path: Path) -> None:
    def define(**resources: Any) -> Callable[..., Any]:
        def body(*_: Any) -> None:
            command = ["torchrun", "--nproc-per-node=8", "train.py"]
            for more in ({"procs_per_node": "gpu", "module": "train"}, {"command": command}):
                task = distributed_train(**more, **resources)
                task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8)

        return body

    assert problems(tmp_path, define()) == []
    (found,) = problems(tmp_path, define(resources_per_node={"cpu": 4}))
    assert found.startswith(f"{PLACE}procs_per_node: gpu, but resources_per_node has no accelerator"), "these apply"


def test_a_training_on_this_machine_needs_no_target(tmp_path: Path) -> None:
    assert problems(tmp_path, lambda *_: distributed_train(**RESTARTED, target="job", backend="local")) == []
    command = {"num_nodes": 2, "command": TORCHRUN, "backend": "local"}
    assert len(problems(tmp_path, lambda *_: distributed_train(**command))) == 1
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))
    assert problems(tmp_path, lambda *_: distributed_train(**RESTARTED, target="job")) == []


def test_the_settings_of_distribute_are_checked(tmp_path: Path) -> None:
    @dsl.component(base_image="registry.example/own:1")
    def own(data: str) -> str:
        return data

    with pytest.raises(BadInputError, match=r"^component own: restart\.max_restarts: target job cannot"):
        distribute(own, restart={"max_restarts": 1}, target="job")
