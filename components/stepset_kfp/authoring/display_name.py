"""Sets the name of a task in KFP's user interface to the name that the author of the pipeline gave to the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepset_kfp.authoring.cluster_checks import may_run_on_cluster
from stepset_kfp.authoring.encoding import first_free, has_runtime_value

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask
    from kfp.dsl.pipeline_context import Pipeline

_shown: WeakKeyDictionary[Pipeline, set[str]] = WeakKeyDictionary()
"""The display names of the tasks of each pipeline."""


def given_name(inputs: Mapping[str, Any]) -> str | None:
    """Returns the name that the inputs of a task give to the job.

    Returns None if the inputs give no name, or if the name contains a run-time value.
    """
    job = inputs.get("job")
    name = inputs.get("name") or (job.get("name") if isinstance(job, Mapping) else None)
    return name if isinstance(name, str) and name and not has_runtime_value(name) else None


def show_name(task: PipelineTask, name: str | None) -> None:
    """Sets the display name of a task.

    If another task of the pipeline already has this display name, the function appends a number. If `name` is None, or
    if KFP's local runner is in use, the task keeps the display name that KFP gives to the task.

    The display name does not affect the run. KFP 2.15 and newer find the outputs of a task by the name of the task in
    the pipeline (backend/src/v2/driver/container.go). Argo also derives the names of its nodes from the name of the
    task in the pipeline.
    """
    from kfp.dsl.pipeline_context import Pipeline

    pipeline = Pipeline.get_default_pipeline()
    if name is None or pipeline is None or not may_run_on_cluster({}):
        return  # KFP's local runner logs a warning for each display name.
    taken = _shown.setdefault(pipeline, set())
    shown = first_free(name, taken)
    taken.add(shown)
    task.set_display_name(shown)
