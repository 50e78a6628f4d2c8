"""Rejects Python objects that a user gives in the place of a value, such as a task instead of one of its outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset_kfp.authoring.encoding import artifact_problem, is_artifact, is_channel, type_of
from stepset_kfp.job_inputs import TEXT_FIELDS

if TYPE_CHECKING:
    from kfp.dsl import BaseComponent, PipelineTask

_WORDS = ("args", "command")
"""The inputs that are lists of words."""
_REMEDIES = {
    "script": "give a constant path",
    "job": "declare it as dict, or give the constant path of a job file, which is read at compile time",
}
"""What to do about a channel of a wrong type that is the whole value of an input. Default: declare another type."""
_PYTHON_TYPES = {"Boolean": "bool", "Dict": "dict", "Integer": "int", "List": "list", "String": "str"}
"""The names that KFP uses for types, with the types of Python."""
_TASK_IN_TEXT = "<kfp.dsl.pipeline_task.PipelineTask object at"
"""The start of the text into which Python converts a task, for example in an f-string."""
_ARTIFACT_IN_TEXT = re.compile(r"\{\{channel:task=[^;]*;name=([^;]*);type=[^;]*@[^;]*;\}\}")
"""The text into which Python converts an artifact (kfp 2.15.2 to 2.17.0, kfp/dsl/pipeline_channel.py).

Only an artifact has a type with `@`. KFP itself does not recognise an artifact in a text."""


def check_objects(inputs: Mapping[str, Any], component: BaseComponent) -> None:
    """Raises BadInputError if an input contains a task, a component or a function.

    Also raises BadInputError if the whole value of an input is a channel of another type than the input.

    Args:
        inputs: the inputs of a task. An input may be a list or a mapping.
        component: the component of the task.
    """
    found = [f"{where}: {problem}" for where, each in _leaves("", inputs) if (problem := _problem(each)) is not None]
    declared = component.component_spec.inputs
    found += [
        f"{name}: {problem}"
        for name, value in inputs.items()
        if is_channel(value) and not is_artifact(value)
        if (problem := _wrong_type(name, value, declared[name].type)) is not None
    ]
    if found:
        raise BadInputError(*found)


def _wrong_type(name: str, value: Any, declared: str) -> str | None:
    """Returns what is wrong with the type of a channel, or None.

    Args:
        declared: the type of the input. A text field of a job also accepts numbers (`as_arguments`).
    """
    actual = type_of(value)
    if actual == declared or (name in TEXT_FIELDS and name != "script" and actual in ("Integer", "Float")):
        return None
    if name in _WORDS:
        return _no_list(name, value)
    remedy = _REMEDIES.get(name, f"declare it as {_PYTHON_TYPES[declared]}")
    return f"{value.name} has the type {actual}, not {declared}; {remedy}"


def _no_list(name: str, value: Any) -> str:
    if (item := _loop_item(value)) is not None:
        return f"KFP passes {item} as {type_of(value)}, not as a list; write {name}=[{item}] to pass it as one argument"
    return f"{value.name} is not a list; declare it as list, or write {name}=[{value.name}] to pass it as one argument"


def _loop_item(value: Any) -> str | None:
    """Returns Python source for the item of a loop or for a field of this item. Returns None for other channels."""
    from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument

    if isinstance(value, LoopArgumentVariable):
        return f"item.{value.subvar_name}"
    return "item" if isinstance(value, LoopParameterArgument) else None


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields each value that is no list and no mapping, with its place, such as `args.1`."""
    if isinstance(value, (Mapping, list, tuple)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items:
            yield from _leaves(f"{where}.{key}" if where else str(key), each)
    else:
        yield where, value


def _problem(value: Any) -> str | None:
    from kfp.dsl import PipelineTask
    from kfp.dsl.base_component import BaseComponent

    if isinstance(value, str):
        if (found := _ARTIFACT_IN_TEXT.search(value)) is not None:
            return artifact_problem(found[1])
        if _TASK_IN_TEXT not in value:
            return None
        return 'the text contains a task; write one of its outputs into the text, such as {task.outputs["Output"]}'
    if isinstance(value, PipelineTask):
        return f"{value.name} is a task; give one of its output parameters: {_outputs(value)}"
    if isinstance(value, BaseComponent):
        return (
            f"{value.name} is a component; to run its function in every rank, use distribute instead of"
            " distributed_train; to use its result, call it and give an output of the task"
        )
    if callable(value) and not isinstance(value, type):
        name = getattr(value, "__name__", type(value).__name__)
        return (
            f"{name} is a Python function; to run it in every rank, decorate it with @dsl.component and use"
            f" distribute({name}, ...) instead of distributed_train; or give the path of a file as script"
        )
    return None


def _outputs(task: PipelineTask) -> str:
    """Returns the output parameters of a task as Python source, such as `.outputs["path"]`."""
    from kfp.dsl.types.type_utils import is_parameter_type

    outputs = task.component_spec.outputs or {}
    names = [name for name, spec in outputs.items() if is_parameter_type(spec.type)]
    return " or ".join(f'.outputs["{name}"]' for name in names) or "it has none, so return a value in its function"
