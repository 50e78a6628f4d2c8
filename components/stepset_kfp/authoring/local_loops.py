"""Finds values that KFP's local runner replaces in a `dsl.ParallelFor`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stepset_kfp.authoring.encoding import is_channel

if TYPE_CHECKING:
    from kfp.dsl.tasks_group import TasksGroup

_log = logging.getLogger(__name__)


def check_local_loop(place: str, values: Iterable[Any]) -> None:
    """Logs a warning if a new task in a loop uses the output of a task outside of the loop, with KFP's local runner.

    The runner replaces this output by the item of the loop. Source: kfp 2.17,
    kfp/local/orchestrator/enhanced_dag_orchestrator.py.

    Args:
        place: the description of the task for messages.
        values: the run-time values in the inputs of the task.
    """
    from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument
    from kfp.dsl.pipeline_context import Pipeline
    from kfp.dsl.tasks_group import ParallelFor
    from kfp.local.config import LocalExecutionConfig

    pipeline = Pipeline.get_default_pipeline()
    if pipeline is None or LocalExecutionConfig.instance is None:
        return
    items = (LoopArgumentVariable, LoopParameterArgument)
    loop = next((group for group in pipeline.groups if isinstance(group, ParallelFor)), None)
    if loop is None:
        return
    known = (None, "", *_tasks(loop))
    # The item of a loop over an output has the task_name of the output, too.
    channels = (each for each in values if is_channel(each) and not isinstance(each, items))
    outside = [channel.full_name for channel in channels if channel.task_name not in known]
    if outside:
        _log.warning(
            "%s: KFP's local runner replaces %s by the item of dsl.ParallelFor; pass the value without the output, and"
            " call after()",
            place,
            ", ".join(outside),
        )


def _tasks(group: TasksGroup) -> Iterator[str]:
    """Yields the names of the tasks in a group."""
    yield from (task.name for task in group.tasks)
    for each in group.groups:
        yield from _tasks(each)
