"""Sets whether KFP may reuse the outputs of an earlier run of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask


def set_caching(task: PipelineTask, caching: bool) -> None:
    """Sets whether KFP may reuse outputs for a task.

    Outside of a pipeline, KFP's local runner executes a task when the task is created. Such a task is over, and KFP
    raises an exception if a setting of the task is changed.
    """
    from kfp.dsl.pipeline_task import TaskState

    if task.state is not TaskState.FINAL:
        task.set_caching_options(caching)
