"""Runs pipelines with KFP's local runner."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl, local

DDP = """\
import json, os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank = dist.get_rank()
for step in range(1, 4):
    if rank == 0:
        print(json.dumps({"stepset": {"step": step, "progress": step / 3, "metrics": {"loss": 1 / step}}}), flush=True)
        __import__("time").sleep(0.3)
print("argv", sys.argv[1:], flush=True)
if rank == 0:
    torch.save({"sum": total}, sys.argv[1])
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"sum": total.item(), "checkpoint": sys.argv[1], "note": "text"}, file)
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class PipelineResult:
    """The result of a pipeline that has ended.

    Args:
        log: output of KFP and the steps.
        error: the error of a pipeline that failed; None: it succeeded.
        root: directory of its outputs.
    """

    log: str
    error: RuntimeError | None
    root: Path

    def output(self, task: str, name: str) -> Path:
        """Returns the file of a task's output; the root contains one run."""
        found = list(self.root.glob(f"*/{task}/{name}"))
        assert len(found) == 1, f"{found}\n{self.log}"
        return found[0]


def run_pipeline(pipeline: Callable[..., Any], root: Path, **arguments: Any) -> PipelineResult:
    """Runs a pipeline to its end.

    Args:
        pipeline: decorated with dsl.pipeline.
        root: directory for outputs.
        arguments: arguments of the pipeline.
    """
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root))
    log = io.StringIO()
    error = None
    with redirect_stdout(log), redirect_stderr(log):
        try:
            pipeline(**arguments)
        except RuntimeError as raised:
            error = raised
    sys.stdout.write(log.getvalue())
    return PipelineResult(log.getvalue(), error, root)


def one_step(make_task: Callable[[], dsl.PipelineTask]) -> Callable[..., Any]:
    """Returns a pipeline with one task."""

    def pipeline() -> None:
        make_task()

    return dsl.pipeline(name="test-pipeline")(pipeline)
