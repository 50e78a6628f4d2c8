"""`distribute(component, ...)`: runs a lightweight component on many nodes.

The step runs step/distributed.py, which starts the component's own command in every rank.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stepset.errors import BadInputError
from stepset.spec.base import nearest
from stepset.spec.names import slug
from stepset_kfp.authoring.distributed_train import has_runtime_value, prepare
from stepset_kfp.task_config import TASK_CONFIG

if TYPE_CHECKING:
    from kfp.dsl import BaseComponent


class Settings(TypedDict, total=False):
    """The keyword arguments of `distribute`: the fields of a job file except those that name the program."""

    name: str
    framework: str | Mapping[str, Any]
    num_nodes: int
    procs_per_node: int | str
    image: str
    env: Mapping[str, Any]
    resources_per_node: Mapping[str, Any]
    shm: str
    storage: list[Mapping[str, Any]]
    checkpoint_dir: str
    roles: list[Mapping[str, Any]]
    restart: Mapping[str, Any]
    deadline: str | int
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
    shared_dir: str
    admission_timeout: int
    startup_timeout: int


def distribute(component: BaseComponent, **settings: Unpack[Settings]) -> BaseComponent:
    """Returns a component with the same inputs and outputs whose function runs in every rank of a training world.

    The outputs are those of rank 0. On a cluster the step and the training pods exchange files in `shared_dir`.

    Args:
        component: a lightweight Python component.
        settings: fields of the job file, as constants: the component gets no inputs for them. `image` defaults to the
            component's own, `shared_dir` to the pipeline's workspace.

    Raises:
        BadInputError: the component is of another kind, or a setting is unknown or invalid.
    """
    from kfp.dsl.component_factory import EXECUTOR_MODULE
    from kfp.dsl.python_component import PythonComponent
    from kfp.dsl.structures import ComponentSpec, InputSpec

    from stepset_kfp.training.distributed_train.component import distributed_train as step

    if unknown := sorted(set(settings) - set(Settings.__annotations__)):
        raise BadInputError(f"{unknown[0]}: no such setting; {nearest(unknown[0], Settings.__annotations__)}")
    spec: ComponentSpec = copy.deepcopy(component.component_spec)
    container = spec.implementation.container
    if container is None or not any(EXECUTOR_MODULE in str(word) for word in container.command):
        raise BadInputError(
            f"component {component.name!r} is not a lightweight Python component; create it with @dsl.component"
        )
    given = {"image": container.image, "name": slug(component.name), **settings}
    _check(given)
    user_command = [*container.command, *(container.args or ())]
    container.command = ["python3", "-m", "stepset_kfp.step.distributed"]
    container.args = ["--settings", json.dumps(given), "--", *user_command]
    train_spec: ComponentSpec = step.component_spec
    container.image = train_spec.implementation.container.image
    spec.inputs = {**(spec.inputs or {}), TASK_CONFIG: InputSpec(type="TaskConfig", default=None, optional=True)}
    spec.task_config_passthroughs = copy.deepcopy(train_spec.task_config_passthroughs)
    return PythonComponent(component_spec=spec, python_func=component.python_func)


def _check(given: Mapping[str, Any]) -> None:
    """Raises BadInputError if a setting is invalid, or not known when the pipeline is compiled."""
    if (variable := next((name for name, value in given.items() if has_runtime_value(value)), None)) is not None:
        raise BadInputError(f"{variable}: settings of distribute are constants; use an input of the component")
    prepare({**given, "function": "pass"}, Path())
