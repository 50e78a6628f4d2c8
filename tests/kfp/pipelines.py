"""Pipelines run by KFP's local runner, as somebody on a laptop does."""

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
class Ran:
    """A pipeline that is over.

    Args:
        log: what KFP and the steps printed.
        error: why it failed; None: it did not.
        root: where its outputs are.
    """

    log: str
    error: RuntimeError | None
    root: Path

    def output(self, task: str, name: str) -> Path:
        """The file of a task's output; there is one run below the root."""
        found = list(self.root.glob(f"*/{task}/{name}"))
        assert len(found) == 1, f"{found}\n{self.log}"
        return found[0]


def run_pipeline(pipeline: Callable[..., Any], root: Path, **arguments: Any) -> Ran:
    """Runs a pipeline to its end.

    Args:
        pipeline: decorated with dsl.pipeline.
        root: directory for outputs.
        arguments: of the pipeline.
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
    return Ran(log.getvalue(), error, root)


def one_step(make_task: Callable[[], dsl.PipelineTask]) -> Callable[..., Any]:
    """A pipeline of one task."""

    def pipeline() -> None:
        make_task()

    return dsl.pipeline(name="test-pipeline")(pipeline)
