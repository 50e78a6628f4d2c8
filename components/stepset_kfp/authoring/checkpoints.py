"""Checks whether several runs of a pipeline would use the same checkpoint directory.

A run continues from the checkpoints that its directory contains. Therefore runs with the same directory would continue
from each other's checkpoints.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepset_kfp.authoring.encoding import is_channel, text_parts

if TYPE_CHECKING:
    from kfp.dsl.pipeline_context import Pipeline
    from kfp.dsl.tasks_group import ParallelFor, TasksGroup

_log = logging.getLogger(__name__)
_DIFFERENT_IN_ITERATIONS = "{{$.pipeline_task_uuid}}"
"""The placeholder whose value differs between the iterations of a loop."""
_DIFFERENT_IN_TASKS = ("{{$.pipeline_task_name}}", _DIFFERENT_IN_ITERATIONS)
"""The placeholders whose values differ between the tasks of a pipeline."""


@dataclass(frozen=True)
class _Use:
    """The first task of a pipeline that uses a checkpoint directory.

    Attributes:
        place: the description of the task for messages.
        groups: the groups that contain the task, from the pipeline to the innermost group.
    """

    place: str
    groups: tuple[TasksGroup, ...]


_uses: WeakKeyDictionary[Pipeline, dict[str, _Use]] = WeakKeyDictionary()


def check_checkpoint_dir(place: str, inputs: Mapping[str, Any], remedy: str) -> None:
    """Logs a warning if other runs of the current pipeline use the checkpoint directory of a new task, too.

    The other runs are the runs of the other iterations of a `dsl.ParallelFor`, or the run of an earlier task. Tasks in
    different branches of a condition are not compared.

    Args:
        place: the description of the task for messages.
        remedy: what the author of the pipeline can write to give each iteration of a loop its own directory.
    """
    from kfp.dsl.pipeline_context import Pipeline
    from kfp.dsl.tasks_group import ParallelFor

    pipeline = Pipeline.get_default_pipeline()
    job = inputs.get("job")
    directory = inputs.get("checkpoint_dir") or (job.get("checkpoint_dir") if isinstance(job, Mapping) else None)
    if pipeline is None or not (is_channel(directory) or isinstance(directory, str)):
        return
    groups = tuple(pipeline.groups)
    loops = [group for group in groups if isinstance(group, ParallelFor)]
    if not all(_differs(directory, loop) for loop in loops):
        _log.warning(
            "%s: checkpoint_dir is the same in all iterations of dsl.ParallelFor, so a run continues from the"
            " checkpoints of another run; %s",
            place,
            remedy,
        )
    text = posixpath.normpath(str(directory))
    if any(each in text for each in _DIFFERENT_IN_TASKS):
        return
    first = _uses.setdefault(pipeline, {}).setdefault(text, _Use(place, groups))
    if first.place != place and not _are_alternatives(first.groups, groups):
        _log.warning(
            "%s: checkpoint_dir is also that of %s, so the later run continues from the checkpoints of the earlier run;"
            " give each task its own directory, unless this is intended",
            place,
            first.place,
        )


def _differs(directory: Any, loop: ParallelFor) -> bool:
    """Returns whether a directory may differ between the iterations of a loop.

    An output of a task may differ, because the task may be in the loop.
    """
    parts: Iterable[Any] = [directory] if is_channel(directory) else text_parts(directory)
    for part in parts:
        if not is_channel(part):
            if part == _DIFFERENT_IN_ITERATIONS:
                return True
            continue
        origins = tuple(_origins(part))
        if origins[-1].task_name or any(each.name == loop.loop_argument.name for each in origins):
            return True
    return False


def _origins(channel: Any) -> Iterator[Any]:
    """Yields the loops' items from which a channel is taken, from the innermost loop, and then the remaining channel.

    A loop can be over a field of the item of another loop. The item of a loop over constants is the last channel.
    """
    from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument

    # The item of a loop returns a field for every attribute name. Therefore `isinstance` is used instead of `getattr`.
    while is_channel(channel):
        owner = channel.loop_argument if isinstance(channel, LoopArgumentVariable) else channel
        yield owner
        channel = owner.items_or_pipeline_channel if isinstance(owner, LoopParameterArgument) else None


def _are_alternatives(first: tuple[TasksGroup, ...], second: tuple[TasksGroup, ...]) -> bool:
    """Returns whether each of two tasks is in a branch of a condition that does not contain the other task."""
    from kfp import dsl

    branches = [
        any(isinstance(group, (dsl.If, dsl.Elif, dsl.Else)) and group not in other for group in own)
        for own, other in ((first, second), (second, first))
    ]
    return all(branches)
