"""The function `distribute`, which converts a lightweight component to a component that runs in every rank.

The step of the new component runs step/distributed.py. This program starts the command of the original component in
every rank.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stepset.errors import BadInputError
from stepset.safe_names import slug
from stepset_kfp.authoring.component_notes import captured_notes, pod_notes
from stepset_kfp.authoring.distributed_train import hint, prepare, with_job
from stepset_kfp.authoring.encoding import Encoder, has_runtime_value, inert_json
from stepset_kfp.task_config import TASK_CONFIG

if TYPE_CHECKING:
    from kfp.dsl.base_component import BaseComponent


_log = logging.getLogger(__name__)
_PROGRAMS = ("script", "module", "command", "function", "args", "code")
"""The inputs of `distributed_train` that select the program."""
_ELSEWHERE = {
    "caching": "call set_caching_options of the task",
    "workdir": "call os.chdir in the function",
    "working_dir": "call os.chdir in the function",
}
"""What to do instead of using a setting that `distribute` does not have."""
_CHECKPOINTS = (
    "pass the directory to an input of the function, whose code loads the last checkpoint, or write a directory of"
    " storage, such as /ckpt/fit"
)


class Settings(TypedDict, total=False):
    """The keyword arguments of `distribute`.

    Most keyword arguments are fields of the job file. The fields that select the program, such as `script`, are not
    allowed.
    """

    name: str
    framework: str | Mapping[str, Any]
    num_nodes: int
    procs_per_node: int | str
    image: str
    requirements: list[str]
    env: Mapping[str, Any]
    resources_per_node: Mapping[str, Any]
    shm: str
    storage: list[Mapping[str, Any]]
    checkpoint_dir: str
    roles: list[Mapping[str, Any]]
    restart: Mapping[str, Any]
    hang: str | Mapping[str, Any]
    deadline: str | int
    termination_grace_period: str | int
    ttl: str | int
    scheduling: Mapping[str, Any]
    queue_name: str
    network: Mapping[str, Any]
    service_account: str
    security: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_template: Mapping[str, Any]
    backend: str
    target: str
    namespace: str
    log_ranks: str
    on_interrupt: str
    on_orphan: str
    shared_dir: str
    admission_timeout: int
    startup_timeout: int


def distribute(component: BaseComponent, **settings: Unpack[Settings]) -> BaseComponent:
    """Returns a copy of a component whose function runs in every rank. The inputs and outputs do not change.

    Rank 0 writes the outputs. On a cluster, the step and the training pods exchange files in the directory
    `shared_dir`. KFP's cache is enabled for the tasks, as for the tasks of the original component.

    Args:
        component: a lightweight Python component.
        settings: the fields of the job file and the options that `Settings` lists. The values must be constants,
            because the returned component has no inputs for the settings. `image` defaults to the component's image.
            `shared_dir` defaults to the pipeline's workspace.

    Raises:
        BadInputError: the component is not a lightweight Python component, or a setting is unknown or invalid.
    """
    from kfp.dsl.base_component import BaseComponent
    from kfp.dsl.component_factory import EXECUTOR_MODULE
    from kfp.dsl.structures import ComponentSpec, InputSpec

    from stepset_kfp.authoring.distributed_component import DistributedComponent
    from stepset_kfp.training.distributed_train.component import distributed_train as step

    if unknown := sorted(set(settings) - set(Settings.__annotations__)):
        raise BadInputError(f"{unknown[0]}: no such setting; {_hint(unknown[0])}")
    if not isinstance(component, BaseComponent):
        raise BadInputError(
            f"{getattr(component, '__name__', type(component).__name__)} is not a component; decorate the function with"
            " @dsl.component, and give distribute the component, not a task"
        )
    spec: ComponentSpec = copy.deepcopy(component.component_spec)
    container = spec.implementation.container
    if container is None or not any(EXECUTOR_MODULE in str(word) for word in container.command or ()):
        raise BadInputError(
            f"component {component.name!r} is not a lightweight Python component; create it with @dsl.component, or run"
            ' the program of a container component with distributed_train(image="REGISTRY/NAME:TAG", command=[...])'
        )
    given = {"image": container.image, "name": slug(component.name), **settings}
    try:
        _check(given)
    except BadInputError as error:
        raise error.at(f"component {component.name}") from None
    for note in captured_notes(container.command[-1]):
        _log.warning("component %s: %s", component.name, note)
    notes = tuple(pod_notes(component, container.command, given))
    user_command = [*container.command, *(container.args or ())]
    container.command = ["python3", "-m", "stepset_kfp.step.distributed"]
    container.args = ["--settings", inert_json(given), "--", *user_command]
    train_spec: ComponentSpec = step.component_spec
    container.image = train_spec.implementation.container.image
    spec.inputs = {**(spec.inputs or {}), TASK_CONFIG: InputSpec(type="TaskConfig", default=None, optional=True)}
    spec.task_config_passthroughs = copy.deepcopy(train_spec.task_config_passthroughs)
    return DistributedComponent(spec, component.python_func, settings, notes)


def _hint(name: str) -> str:
    """Returns what to write instead of an unknown setting."""
    if name in _PROGRAMS:
        return "the program is the function of the component; to run another program, use distributed_train"
    return _ELSEWHERE.get(name) or hint(name, Settings.__annotations__)


def _check(given: Mapping[str, Any]) -> None:
    """Raises BadInputError if a setting is invalid, or if its value is not a constant."""
    if (variable := next((name for name, value in given.items() if has_runtime_value(value)), None)) is not None:
        remedy = _CHECKPOINTS if variable == "checkpoint_dir" else "use an input of the component"
        raise BadInputError(f"{variable}: settings of distribute are constants; {remedy}")
    shared = given.get("shared_dir", "")
    if not isinstance(shared, str) or (shared and not shared.startswith("/")):
        raise BadInputError(f"shared_dir: {shared!r} is not an absolute path; start it with '/'")
    inputs, base = with_job({**given, "function": "pass"}, Path())
    prepare(inputs, base, Encoder(), str(given["name"]))
