"""The functions `cleanup_training` and `wait_for_training`. Each function creates a task of a component.

The functions disable KFP's cache for these tasks, because the cache compares only the inputs of a task. With the cache,
`cleanup_training` would not delete runs, and `wait_for_training` would return the result of an earlier run with the
same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.spec.names import check_dns_1035
from stepset_kfp.authoring.caching import set_caching
from stepset_kfp.authoring.cleanup_scope import add_cleanup
from stepset_kfp.authoring.cluster_checks import check_step, place_of
from stepset_kfp.authoring.encoding import Encoder, has_runtime_value, with_inputs
from stepset_kfp.authoring.input_objects import check_objects
from stepset_kfp.options import check_options

if TYPE_CHECKING:
    from kfp.dsl import BaseComponent
    from kfp.dsl.pipeline_task import PipelineTask


def cleanup_training(
    *, run: Any = "", succeeded_too: Any = False, backend: Any = "auto", target: Any = "jobset", namespace: Any = ""
) -> PipelineTask:
    """Returns a task that stops and deletes training runs of this pipeline run.

    By default, runs that have succeeded are not deleted. Use the task as the exit task of a dsl.ExitHandler.

    Args:
        run: the name of the run to delete. By default, the task deletes all runs that the steps of this pipeline run
            have created.
        succeeded_too: whether the task also deletes runs that have succeeded.
        backend: `auto`, `local` or `kubernetes`. `auto` selects the cluster if the step runs in a pod, and this machine
            otherwise. With `local` there is nothing to delete.
        target: the kind of the runs on a cluster: jobset, trainjob, statefulset, job or volcano. The task does not
            delete runs of other kinds.
        namespace: the namespace of the runs. Default: the namespace of the step.

    Raises:
        BadInputError: a constant is invalid.
    """
    from stepset_kfp.training.cleanup_training.component import cleanup_training as component

    task = _uncached(
        component, run=run, succeeded_too=succeeded_too, backend=backend, target=target, namespace=namespace
    )
    add_cleanup({"run": run, "target": target, "namespace": namespace})
    return task


def wait_for_training(*, run: Any, backend: Any = "auto", namespace: Any = "", timeout: Any = 86400) -> PipelineTask:
    """Returns a task that waits for a run. The task fails if the run fails. Another program may have started the run.

    Args:
        run: the name of a run or of a job. If no run has this name, the task waits for the newest run of the job with
            this name.
        backend: `auto`, `local` or `kubernetes`. `auto` selects the cluster if the step runs in a pod, and this machine
            otherwise.
        namespace: the namespace of the run. Default: the namespace of the step.
        timeout: the maximum number of seconds until the run exists and has finished. Default: one day.

    Returns:
        The task. The task has the outputs `report` and `result`.

    Raises:
        BadInputError: a constant is invalid.
    """
    from stepset_kfp.training.wait_for_training.component import wait_for_training as component

    return _uncached(component, run=run, backend=backend, namespace=namespace, timeout=timeout)


def _uncached(component: BaseComponent, **inputs: Any) -> PipelineTask:
    place = place_of(component, None)
    try:
        check_objects(inputs, component)
        _check(inputs)
    except BadInputError as error:
        raise error.at(place) from None
    check_step(place, component)
    encoder = Encoder()
    # KFP requires the input `run`. If it is encoded, the step ignores the empty text.
    arguments = {"run": "", **encoder.inputs(inputs)}
    task = with_inputs(component, encoder.values)(**arguments, **encoder.values)
    set_caching(task, False)
    return task


def _check(inputs: Mapping[str, Any]) -> None:
    """Raises BadInputError if a constant among the inputs is invalid. Run-time values are checked in the step."""
    constants = {name: value for name, value in inputs.items() if not has_runtime_value(value)}
    check_options(constants)
    timeout = constants.get("timeout", 0)
    if not isinstance(timeout, (int, float)) or timeout < 0:
        raise BadInputError(f"timeout: {timeout!r} is not a number of seconds; give 0 or more")
    if "timeout" in inputs and constants.get("run") == "":
        raise BadInputError("run: is empty; give the name of a run or of a job")
    try:
        if run := constants.get("run"):
            check_dns_1035(str(run))
    except ValueError as error:
        raise BadInputError(f"run: {error}; give the name of a run or of a job") from error
