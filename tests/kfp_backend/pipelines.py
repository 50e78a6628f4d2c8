"""Pipelines with a training in different places: plain, in an exit handler, a loop, a nested pipeline, a condition."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl

from stepset_kfp import cleanup_training, distributed_train

# Writes each start to a file, saves a checkpoint, and trains until the file `go` exists.
TRAIN = """\
import json, os, pathlib, time
home = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
home.mkdir(parents=True, exist_ok=True)
rank, attempt = os.environ["STEPSET_NODE_RANK"], os.environ["STEPSET_ATTEMPT"]
begin = "checkpoint" if os.environ.get("STEPSET_RESUME_FROM") else "nothing"
starts = home.parent / (home.name + "-starts")
starts.mkdir(exist_ok=True)
(starts / f"{time.time_ns()}-{rank}").write_text(json.dumps({"attempt": attempt, "begin": begin}))
(home / ("rank-" + rank)).write_text("saved")
print("attempt", attempt, "begins from", begin, flush=True)
while not (home.parent / "go").exists():
    if (home.parent / "fail").exists():
        raise ValueError("as the test wants")
    time.sleep(0.1)
if rank == "0":
    pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps({"begin": begin, "accuracy": 0.5}))
"""


@dataclass(frozen=True)
class Shape:
    """A pipeline, and the number of its trainings."""

    pipeline: Any
    trainings: int


def shapes(home: Path, settings: dict[str, Any]) -> dict[str, Shape]:
    """Returns pipelines by name.

    Args:
        home: the directory of their checkpoints; each pipeline has a directory with its name in it.
        settings: inputs of distributed_train.
    """

    def train(name: str, item: Any = 0, **more: Any) -> Any:
        return distributed_train(
            **{"num_nodes": 1, **settings, **more}, checkpoint_dir=f"{home}/{name}/checkpoints-{item}"
        )

    def pipeline(name: str) -> Callable[[Callable[..., Any]], Any]:
        return dsl.pipeline(name=name)

    @pipeline("plain")
    def plain():
        train("plain")

    @pipeline("exit-handler")
    def exit_handler():
        with dsl.ExitHandler(cleanup_training()):
            train("exit-handler")

    @pipeline("loop")
    def loop():
        with dsl.ParallelFor([0, 1]) as item:
            train("loop", item)

    @pipeline("inner")
    def inner():
        train("nested")

    @pipeline("nested")
    def nested():
        inner()

    @pipeline("condition")
    def condition(wanted: str = "yes"):
        with dsl.If(wanted == "yes"):
            train("condition")

    return {
        "plain": Shape(plain, 1),
        "exit-handler": Shape(exit_handler, 1),
        "loop": Shape(loop, 2),
        "nested": Shape(nested, 1),
        "condition": Shape(condition, 1),
    }
