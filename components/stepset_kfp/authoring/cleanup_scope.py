"""Checks whether the `cleanup_training` tasks of a pipeline select the runs that the pipeline creates.

A `cleanup_training` task deletes only the runs of one target in one namespace.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepset_kfp.authoring.cluster_checks import may_run_on_cluster, pipeline_for_cluster
from stepset_kfp.authoring.encoding import has_runtime_value

if TYPE_CHECKING:
    from kfp.dsl.pipeline_context import Pipeline

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Scope:
    """The target and the namespace of runs. An empty namespace is the namespace of the step."""

    target: str
    namespace: str

    def __str__(self) -> str:
        namespace = f"namespace {self.namespace}" if self.namespace else "the step's namespace"
        return f"target {self.target} in {namespace}"


@dataclass
class _Tasks:
    """The scopes of the cleanup tasks of a pipeline, and the training tasks that precede the first cleanup task."""

    trainings: list[tuple[str, _Scope]] = field(default_factory=list)
    cleanups: list[_Scope] = field(default_factory=list)


_tasks: WeakKeyDictionary[Pipeline, _Tasks] = WeakKeyDictionary()


def add_training(place: str, inputs: Mapping[str, Any]) -> None:
    """Checks a training task of the current pipeline. Logs a warning if no recorded cleanup task selects its run.

    If the pipeline has no cleanup task yet, the first call of `add_cleanup` checks the training task.

    Args:
        place: the description of the task for messages.
        inputs: the inputs of the task. The function does nothing if the target or the namespace is a run-time value.
    """
    tasks, scope = _tasks_of_pipeline(), _scope(inputs)
    if tasks is None or scope is None or not may_run_on_cluster(inputs):
        return
    if tasks.cleanups:
        _warn(place, scope, tasks.cleanups)
    else:
        tasks.trainings.append((place, scope))


def add_cleanup(inputs: Mapping[str, Any]) -> None:
    """Records a cleanup task of the current pipeline. The first cleanup task is compared with the earlier trainings.

    Logs one warning for each earlier training whose run the cleanup task does not select. Later cleanup tasks log
    nothing, because each training has been checked.

    A task that deletes a single run, or whose target or namespace is a run-time value, is not recorded.
    """
    tasks, scope = _tasks_of_pipeline(), _scope(inputs)
    if tasks is None or scope is None or has_runtime_value(inputs["run"]) or inputs["run"]:
        return
    tasks.cleanups.append(scope)
    for place, training in tasks.trainings:
        _warn(place, training, tasks.cleanups)
    tasks.trainings.clear()


def _warn(place: str, training: _Scope, cleanups: list[_Scope]) -> None:
    if training not in cleanups:
        namespace = f', namespace="{training.namespace}"' if training.namespace else ""
        _log.warning(
            "%s: the run has %s, but no cleanup_training so far deletes such runs; call cleanup_training(target=%s) if"
            " the pipeline does not call it later",
            place,
            training,
            f'"{training.target}"{namespace}',
        )


def _tasks_of_pipeline() -> _Tasks | None:
    """Returns the tasks of the pipeline that is being compiled for a cluster."""
    pipeline = pipeline_for_cluster()
    return None if pipeline is None else _tasks.setdefault(pipeline, _Tasks())


def _scope(inputs: Mapping[str, Any]) -> _Scope | None:
    """Returns the scope of a task's inputs, or None if the scope is known only at run time."""
    target, namespace = inputs.get("target", ""), inputs.get("namespace", "")
    if has_runtime_value(target) or has_runtime_value(namespace):
        return None
    return _Scope(target or "jobset", namespace or "")
