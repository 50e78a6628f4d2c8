"""Checks a task when KFP compiles the pipeline.

The author of a pipeline changes the settings of a task after the creation of the task, and KFP reads the settings after
the function that defines the pipeline has ended. Therefore the object in which the task stores its resources starts the
check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kfp.dsl.structures import ResourceSpec

from stepset.errors import BadInputError
from stepset_kfp.authoring.cluster_checks import may_run_on_cluster
from stepset_kfp.authoring.settings.accelerators import accelerator_notes
from stepset_kfp.authoring.settings.not_passed import not_passed_notes
from stepset_kfp.authoring.settings.overridden import overridden_notes
from stepset_kfp.authoring.settings.volumes import volume_notes

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

_log = logging.getLogger(__name__)


def check_at_compilation(task: PipelineTask, place: str, inputs: Mapping[str, Any], remedy: str) -> None:
    """Checks a task and its settings when KFP compiles the pipeline for a cluster.

    The compilation logs a warning for each note about the task, and raises BadInputError if a setting is invalid.

    Args:
        task: the task, before its settings are changed.
        place: the description of the task for messages.
        inputs: the inputs of the task.
        remedy: how the author of the pipeline can write the checkpoints to the workspace.
    """
    container = task.container_spec
    if container is None or container.resources is not None or not may_run_on_cluster(inputs):
        return
    job = inputs.get("job")
    fields = {**(job if isinstance(job, Mapping) else {}), **inputs}

    def check() -> None:
        try:
            for note in _notes(task, fields, remedy):
                _log.warning("%s: %s", place, note)
        except BadInputError as error:
            raise error.at(place) from None

    container.resources = _ObservedResources(check)


def _notes(task: PipelineTask, fields: Mapping[str, Any], remedy: str) -> Iterator[str]:
    """Yields the notes about a task, whose settings do not change any more.

    Args:
        task: the task.
        fields: the fields of the job, and the other inputs of the task.
        remedy: how the author of the pipeline can write the checkpoints to the workspace.
    """
    yield from accelerator_notes(task.container_spec.resources, fields)
    yield from volume_notes(task, fields, remedy)
    yield from not_passed_notes(task, fields)
    yield from overridden_notes(task, fields)


class _ObservedResources(ResourceSpec):  # type: ignore[misc]  # kfp has no types
    """The resources of a task. When KFP's compiler first reads the type of the accelerators, the task is checked.

    The compiler always reads the type, because the components have TaskConfig passthroughs. The compiler also reads
    `__dict__` (kfp 2.15.2 to 2.17.0, kfp/compiler/pipeline_spec_builder.py). Therefore `__dict__` contains the type
    under the name of the attribute. The compiler adds each entry of `__dict__` that contains a run-time value to the
    inputs of the task. Therefore the check is a slot.
    """

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check: Callable[[], None] | None = check

    @property
    def accelerator_type(self) -> str | None:
        check, self._check = self._check, None  # the compiler and the check itself read the type several times
        if check is not None:
            check()
        name: str | None = self.__dict__["accelerator_type"]
        return name

    @accelerator_type.setter
    def accelerator_type(self, name: str | None) -> None:
        self.__dict__["accelerator_type"] = name
