"""Checks whether a pipeline that is being compiled can run on a cluster, or with KFP's local runner.

The steps and the training pods need images, and all nodes must be able to mount the pipeline's workspace. KFP's local
runner needs no images, and a user can select the local runner after the pipeline is defined. Therefore a missing image
causes only a warning.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from stepset.errors import BadInputError
from stepset_kfp.authoring.encoding import WORKSPACE, first_free, is_artifact, is_channel, type_of
from stepset_kfp.task_config import WORKSPACE_MOUNT, WORKSPACE_REMEDY, allow_several_nodes

if TYPE_CHECKING:
    from kfp.dsl import BaseComponent, PipelineConfig
    from kfp.dsl.pipeline_context import Pipeline

VARIABLE = "STEPSET_KFP_IMAGE"
_log = logging.getLogger(__name__)
_warned_about_venv: WeakSet[Pipeline] = WeakSet()
"""The pipelines for which `_check_virtual_environment` has logged a warning."""


def check_step(place: str, component: BaseComponent) -> None:
    """Logs a warning if the step of a component cannot start.

    On a cluster, the step cannot start if its image is stepset's default image, which is not published. With KFP's
    local runner, the step cannot start in the new virtual environment that the runner creates by default. Each warning
    is logged once per pipeline.

    Args:
        place: the description of the task for messages.
    """
    _check_virtual_environment(place)
    pipeline = pipeline_for_cluster()
    if pipeline is None:
        return
    image = component.component_spec.implementation.container.image
    if image == os.environ.get(VARIABLE) or image != _unpublished_image():
        return
    containers = (task.container_spec for task in pipeline.tasks.values())
    if any(container is not None and container.image == image for container in containers):
        return
    _log.warning(
        "%s: the step's image %s is not published, so the step cannot start on a cluster; build the image from"
        " deploy/kfp/Containerfile and set %s to its name before Python imports stepset_kfp (KFP's local runner"
        " kfp.local.SubprocessRunner(use_venv=False) needs no image)",
        place,
        image,
        VARIABLE,
    )


def _check_virtual_environment(place: str) -> None:
    """Logs a warning if KFP's local runner starts the steps in virtual environments, which do not contain stepset."""
    from kfp.dsl.pipeline_context import Pipeline
    from kfp.local import SubprocessRunner
    from kfp.local.config import LocalExecutionConfig

    runner = getattr(LocalExecutionConfig.instance, "runner", None)
    pipeline = Pipeline.get_default_pipeline()
    if not isinstance(runner, SubprocessRunner) or not runner.use_venv or pipeline in _warned_about_venv:
        return
    if pipeline is not None:
        _warned_about_venv.add(pipeline)
    _log.warning(
        "%s: KFP's local runner starts the step in a new virtual environment, in which kfp and stepset are missing; use"
        " kfp.local.SubprocessRunner(use_venv=False), which runs the step in the current environment",
        place,
    )


def place_of(component: BaseComponent, job: str | None) -> str:
    """Returns a description of a component's next task for use in messages. An example is `task NAME (JOB)`.

    Args:
        component: the component. The caller will add a task of this component to the current pipeline.
        job: the name that the author of the pipeline gives to the job. None if the author gives no name.
    """
    from kfp.dsl.pipeline_context import Pipeline

    pipeline = Pipeline.get_default_pipeline()
    tasks = pipeline.tasks if pipeline is not None else ()
    # kfp.dsl.pipeline_context.Pipeline.add_task gives these names to the tasks of one component.
    task = first_free(component.name, tasks)
    return f"task {task} ({job})" if job else f"task {task}"


def may_run_on_cluster(inputs: Mapping[str, Any]) -> bool:
    """Returns whether a step with these inputs may train on a cluster.

    A step trains on this machine if KFP's local runner is in use, or if the input `backend` is `local`.
    """
    from kfp.local.config import LocalExecutionConfig

    return LocalExecutionConfig.instance is None and inputs.get("backend") != "local"


def check_training(place: str, inputs: Mapping[str, Any]) -> None:
    """Checks the inputs of a step, if the step may train on a cluster.

    Logs a warning if the training pods have no image. Raises BadInputError if several nodes mount a workspace that only
    one node can mount.

    Args:
        place: the description of the task for messages.
        inputs: the inputs of the component. The value of `job` must be a mapping or a run-time value.
    """
    if pipeline_for_cluster() is None or not may_run_on_cluster(inputs):
        return
    job = inputs.get("job", {})
    if not inputs.get("image") and isinstance(job, Mapping) and not job.get("image"):
        _log.warning(
            '%s: the job has no image, and the training pods of a cluster need one; add image="REGISTRY/NAME:TAG" (a'
            " local run needs no image)",
            place,
        )
    nodes = inputs.get("num_nodes") or (job.get("num_nodes") if isinstance(job, Mapping) else None)
    check_workspace(place, nodes, inputs)


def log_pod_notes(place: str, notes: Iterable[str]) -> None:
    """Logs notes about the training pods of a task, if a pipeline is being compiled for a cluster.

    Args:
        place: the description of the task for messages.
    """
    if pipeline_for_cluster() is not None:
        for note in notes:
            _log.warning("%s: %s", place, note)


def check_shared_dir(place: str, num_nodes: int, shared_dir: str, inputs: Mapping[str, Any]) -> None:
    """Checks the directory in which the step and the ranks of a distributed component exchange files on a cluster.

    If `shared_dir` is empty, logs a warning in two cases: the pipeline has no workspace, or no input refers to the
    workspace. Then checks the access modes of the workspace, if the directory or an input is in the workspace. Raises
    the errors of `check_workspace`.

    Args:
        place: the description of the task for messages.
        num_nodes: the number of nodes.
        shared_dir: the directory. An empty string means the workspace.
    """
    if pipeline_for_cluster() is None:
        return
    config = _pipeline_config()
    if not shared_dir and (config is None or config.workspace is None):
        _log.warning(
            "%s: the pipeline has no workspace, so on a cluster the step and the training pods cannot exchange files;"
            " add a workspace: %s, or mount a volume on the task and set shared_dir to its mount path (a local run"
            " needs neither)",
            place,
            WORKSPACE_REMEDY,
        )
    elif not shared_dir and not any(map(_may_use_workspace, inputs.values())):
        _log.warning(
            "%s: no input refers to the pipeline's workspace, so KFP does not mount it, and on a cluster the step and"
            " the training pods cannot exchange files; give the function an input such as workspace: str, and"
            " pass workspace=dsl.WORKSPACE_PATH_PLACEHOLDER (a local run does not need this)",
            place,
        )
    check_workspace(place, num_nodes, {**inputs, "shared_dir": shared_dir or WORKSPACE})


def check_workspace(place: str, num_nodes: Any, inputs: Mapping[str, Any]) -> None:
    """Checks whether all nodes of a task can mount the workspace of the pipeline.

    The function does nothing if the task has only one node, or if no constant among `inputs` refers to the workspace.

    If the pipeline does not request access modes, the default of the KFP server applies, and the function logs a
    warning. If the requested access modes allow only one node, the function raises BadInputError.
    """
    config = _pipeline_config() if pipeline_for_cluster() is not None else None
    workspace = config.workspace if config is not None else None
    if workspace is None or not isinstance(num_nodes, int) or num_nodes < 2 or not _uses_workspace(inputs):
        return
    modes = workspace.kubernetes.pvcSpecPatch.get("accessModes")
    if modes is None:
        _log.warning(
            "%s: %d nodes mount the pipeline's workspace, but its access mode is the default of the KFP server, which"
            " may allow one node only; request ReadWriteMany: %s",
            place,
            num_nodes,
            WORKSPACE_REMEDY,
        )
    elif not allow_several_nodes(modes):
        raise BadInputError(
            f"{num_nodes} nodes mount the pipeline's workspace, but it is {', '.join(modes)}; request ReadWriteMany:"
            f" {WORKSPACE_REMEDY}",
            where=place,
        )


def pipeline_for_cluster() -> Pipeline | None:
    """Returns the pipeline that is being compiled.

    Returns None if no pipeline is being compiled, or if KFP's local runner is in use.
    """
    from kfp.dsl.pipeline_context import Pipeline

    return Pipeline.get_default_pipeline() if may_run_on_cluster({}) else None


def _unpublished_image() -> str:
    from stepset_kfp.training.distributed_train.component import IMAGE

    return IMAGE


def _pipeline_config() -> PipelineConfig | None:
    """Returns the configuration of the pipeline that is being compiled.

    KFP has no function that returns this configuration. The `GraphComponent` of the pipeline stores the configuration,
    and calls the function that defines the pipeline. Therefore `_pipeline_config` searches the calling frames for the
    `GraphComponent` (kfp 2.15.2 to 2.17.0, kfp/dsl/graph_component.py).
    """
    from kfp.dsl.graph_component import GraphComponent

    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        frame = caller
        owner = frame.f_locals.get("self")
        if isinstance(owner, GraphComponent):
            return owner.pipeline_config
    return None


def _may_use_workspace(value: Any) -> bool:
    """Returns whether an input refers to the workspace, or may refer to the workspace at run time.

    KFP's driver also mounts the workspace if a string from another task is a path in the workspace, or if an importer
    has downloaded an artifact to the workspace (needsWorkspaceMount in backend/src/v2/driver/driver.go).
    """
    if is_artifact(value):
        return getattr(value.task, "importer_spec", None) is not None
    return type_of(value) == "String" if is_channel(value) else _uses_workspace(value)


def _uses_workspace(value: Any) -> bool:
    """Returns whether a constant refers to the workspace.

    If an input refers to the workspace, KFP's driver mounts the workspace.
    """
    if isinstance(value, str):
        return WORKSPACE in value or value.startswith(WORKSPACE_MOUNT)
    if isinstance(value, Mapping):
        return any(map(_uses_workspace, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_uses_workspace, value))
