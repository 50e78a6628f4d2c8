"""Encodes the inputs of a task. Without the encoding, KFP or Argo would change some values before the step reads them.

stepset_kfp/encoding.py decodes the values in the step. docs/design/kfp-inputs.md describes which strings KFP and Argo
replace, and how each kind of value is encoded.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.spec.scalars import Scalar
from stepset_kfp.encoding import ENCODED_INPUTS, FLOAT, FORMS, ITEMS, JSON, SOURCE, TEXT, TEXTS, VALUE
from stepset_kfp.job_inputs import TEXT_FIELDS

if TYPE_CHECKING:
    from kfp.dsl import BaseComponent
    from kfp.dsl.pipeline_channel import PipelineChannel

WORKSPACE = "{{$.workspace_path}}"
PLACEHOLDERS = (
    "{{$.pipeline_job_name}}",
    "{{$.pipeline_job_resource_name}}",
    "{{$.pipeline_job_uuid}}",
    "{{$.pipeline_task_name}}",
    "{{$.pipeline_task_uuid}}",
    "{{$.pipeline_job_create_time_utc}}",
    "{{$.pipeline_job_schedule_time_utc}}",
    WORKSPACE,
)
"""The placeholders that KFP's driver replaces in inputs."""
_NOT_REPLACED = ("{{$.pipeline_root}}", "{{$.outputs.output_file}}", "{{$}}")
"""Placeholders of KFP that KFP's driver does not replace in inputs."""
_MAX_EXACT = 2**53
"""The largest integer up to which every integer is exact as a double."""
WORDS = ("args", "command", "env")
"""The fields whose values are arguments or environment variables of a process. These values are strings."""
_ALTERED = re.compile("[\x7f\U00010000-\U0010ffff]")
"""Characters that Argo may write as invalid JSON escape sequences.

Go's Unicode tables determine which characters are escaped."""
_IMPOSSIBLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates. A process or a pipeline cannot receive these characters."""


class Encoder:
    """Encodes the inputs of one task.

    An input may contain run-time values, such as outputs of other tasks. The encoder adds an input to
    the task for each run-time value. `values` maps the names of these additional inputs to their values.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        """Args: taken: the names of the task's other inputs."""
        self.values: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._taken = taken

    def inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs in a form that neither KFP nor Argo changes.

        An input that would be changed becomes an item of the additional input `encoded_inputs`.
        Raises BadInputError if a value cannot be passed on.
        """
        plain = {name: value for name, value in given.items() if _is_plain(name, value)}
        encoded = {name: self._encode(value, name, name in WORDS) for name, value in given.items() if name not in plain}
        return {**plain, **({ENCODED_INPUTS: encoded} if encoded else {})}

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments that contain run-time values inside a text, list or mapping, in an encoded form.

        An argument that is a run-time value is not in the result, because KFP passes this value unchanged.
        """
        return {
            name: self._encode(value, f"input {name}", False)
            for name, value in given.items()
            if not is_channel(value) and has_runtime_value(value) and value not in PLACEHOLDERS
        }

    def _encode(self, value: Any, where: str, words: bool) -> Any:
        if is_channel(value):
            reference = self._reference(value, where)
            if _is_words(where):  # the whole value is a list or a mapping
                return {TEXTS: next(iter(reference.values()))}
            return {TEXT: [reference]} if words and type_of(value) != "String" else reference
        if isinstance(value, str):
            return self._text(value, where)
        if isinstance(value, Mapping):
            return self._mapping(value, where, words)
        if isinstance(value, (list, tuple)):
            return [self._encode(item, f"{where}.{number}", words) for number, item in enumerate(value)]
        if isinstance(value, Scalar):
            return {SOURCE: value.source}
        if words and isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # KFP passes 3 as 3.0, and the step does not know which of them the author wrote
        return {SOURCE: _number_source(value)} if _is_changed_number(value) else value

    def _mapping(self, value: Mapping[Any, Any], where: str, words: bool) -> Any:
        pairs = [
            (self._encode(key, where, True), self._encode(item, place, words or _is_words(place)))
            for key, item, place in ((key, item, f"{where}.{key}") for key, item in value.items())
        ]
        ordered = where.rpartition(".")[2] == "env" and _has_order(value)
        if ordered or any(isinstance(key, Mapping) for key, _ in pairs) or (len(pairs) == 1 and pairs[0][0] in FORMS):
            return {ITEMS: [list(pair) for pair in pairs]}
        return dict(pairs)

    def _text(self, text: str, where: str) -> Any:
        parts = [self._part(part, where) for part in text_parts(text)]
        return parts[0] if len(parts) == 1 and (isinstance(parts[0], str) or JSON in parts[0]) else {TEXT: parts}

    def _part(self, part: Any, where: str) -> Any:
        if is_channel(part) or part in PLACEHOLDERS:
            return self._reference(part, where)
        if (found := _IMPOSSIBLE.search(part)) is not None:
            raise BadInputError(
                f"{where}: contains U+{ord(found[0]):04X}, which no process and no pipeline can pass on; write the text"
                " to a file, and give the file's path"
            )
        if (placeholder := next((each for each in _NOT_REPLACED if each in part), None)) is not None:
            raise BadInputError(
                f"{where}: KFP does not replace {placeholder} in inputs; use a parameter of the pipeline instead"
            )
        if _is_inert(part):
            return part
        return {JSON: inert_json(part)}

    def _name_of(self, value: PipelineChannel | str) -> str:
        """Returns the name of the new input for a run-time value. KFP's user interface shows this name."""
        name = re.sub(r"[^a-z0-9]+", "_", f"value_{_origin(value)}".lower()).rstrip("_")
        return first_free(name, (*self._names.values(), *self._taken), "_")

    def _reference(self, value: Any, where: str) -> dict[str, str]:
        """Adds a run-time value to the inputs of the task, and returns a reference to this input."""
        if is_artifact(value):
            raise BadInputError(f"{where}: {artifact_problem(value.name)}")
        if (name := self._names.get(str(value))) is None:
            name = self._names[str(value)] = self._name_of(value)
        self.values[name] = value
        return {FLOAT if type_of(value) == "Float" else VALUE: name}


def _origin(value: PipelineChannel | str) -> str:
    """Returns the name of a run-time value as the author of the pipeline knows it.

    The name is `epochs` for a parameter of the pipeline, `prepare.path` for an output of the task `prepare`, and
    `pipeline_job_uuid` for a placeholder.
    """
    if isinstance(value, str):
        return value.removeprefix("{{$.").removesuffix("}}")
    return f"{value.task_name}.{value.name}" if value.task_name else str(value.name)


def inert_json(value: Any) -> str:
    """Returns a value as ASCII JSON that KFP and Argo do not change.

    >>> inert_json("{{workflow.name}}")
    '"{\\\\u007bworkflow.name}}"'
    """
    return json.dumps(value).replace("\x7f", "\\u007f").replace("{{", "{\\u007b")


def with_inputs(component: BaseComponent, values: Mapping[str, Any], without: Collection[str] = ()) -> BaseComponent:
    """Returns a copy of a component with an additional input for each value.

    Args:
        values: the names and values of the additional inputs. The values are run-time values and placeholders.
        without: the names of optional inputs to remove from the copy.
    """
    from kfp.dsl.python_component import PythonComponent
    from kfp.dsl.structures import InputSpec

    spec = copy.deepcopy(component.component_spec)
    kept = {name: each for name, each in spec.inputs.items() if name not in without}
    further = {
        name: InputSpec(type_of(value), optional=True, description=_description(value))
        for name, value in values.items()
    }
    spec.inputs = {**kept, **further}
    return PythonComponent(component_spec=spec, python_func=component.python_func)


def _description(value: PipelineChannel | str | Mapping[str, Any]) -> str:
    """Returns the description of an additional input. The compiled pipeline contains this description."""
    if isinstance(value, Mapping):
        return "inputs with run-time values inside a text; set by stepset_kfp.distribute."
    return f"run-time value {_origin(value)}; encoded_inputs contains the inputs that use it."


def type_of(value: PipelineChannel | str | Mapping[str, Any]) -> str:
    """Returns the name that KFP uses for the type of a channel, a placeholder or a mapping."""
    from kfp.dsl.types.type_utils import IR_TYPE_TO_IN_MEMORY_SPEC_TYPE, get_parameter_type_name

    if isinstance(value, Mapping):
        return "Dict"
    name = "STRING" if isinstance(value, str) else get_parameter_type_name(value.channel_type)
    return str(IR_TYPE_TO_IN_MEMORY_SPEC_TYPE[name])


def has_runtime_value(value: Any) -> bool:
    """Returns whether a value contains the output of a task, a parameter of the pipeline or a placeholder of KFP."""
    if isinstance(value, str):
        return any(is_channel(part) or part in PLACEHOLDERS for part in text_parts(value))
    if isinstance(value, Mapping):
        return any(has_runtime_value(key) or has_runtime_value(item) for key, item in value.items())
    return any(map(has_runtime_value, value)) if isinstance(value, (list, tuple)) else is_channel(value)


def text_parts(text: str) -> Iterator[str | PipelineChannel]:
    """Splits a string into parts. A part is a constant string, a placeholder or a channel.

    If the string is empty, the function yields one empty string.
    """
    from kfp.dsl.pipeline_channel import extract_pipeline_channels_from_string

    channels = {each.pattern: each for each in extract_pipeline_channels_from_string(text) if each.pattern in text}
    pattern = "|".join(map(re.escape, (*channels, *PLACEHOLDERS)))
    parts = [part for part in re.split(f"({pattern})", text) if part]
    yield from (_loop_item(channels[part]) if part in channels else part for part in parts or [""])


def _loop_item(channel: PipelineChannel) -> PipelineChannel:
    """If `channel` is a copy of a loop's channel, returns the original channel. Returns other channels unchanged.

    A loop's channel stands for the item of the loop, or for a field of the item. If KFP finds a channel in a string,
    KFP creates a copy of the channel. KFP's compiler cannot use the copy of a loop's channel, because the pipeline has
    no input with the name of the copy.
    """
    from kfp.dsl.for_loop import LoopArgumentVariable
    from kfp.dsl.pipeline_context import Pipeline
    from kfp.dsl.tasks_group import ParallelFor

    pipeline = Pipeline.get_default_pipeline()
    groups = pipeline.groups if pipeline is not None else ()
    items = [group.loop_argument for group in groups if isinstance(group, ParallelFor)]
    for item in items:
        if channel.pattern == item.pattern:
            return item
    for item in items:
        # If a loop is over a field of another loop's item, the name of its item starts with the name of this field.
        start, _, field = channel.name.rpartition(LoopArgumentVariable.SUBVAR_NAME_DELIMITER)
        if start == item.name and field.isidentifier():
            return LoopArgumentVariable(item, field)
    return channel


def is_channel(value: Any) -> bool:
    """Returns whether a value is an output of a task or a parameter of the pipeline.

    Returns False for a string, a list or a mapping that contains such an output or parameter.
    """
    from kfp.dsl.pipeline_channel import PipelineChannel

    return isinstance(value, PipelineChannel)


def _is_words(where: str) -> bool:
    """Returns whether a place is the whole value of `args`, `command` or `env` of the job or of a role.

    >>> _is_words("args"), _is_words("job.env"), _is_words("job.roles.0.args"), _is_words("labels.env")
    (True, True, True, False)
    """
    return re.fullmatch(rf"(job\.)?(roles\.\d+\.)?({'|'.join(WORDS)})", where) is not None


def is_artifact(value: Any) -> bool:
    """Returns whether a value is an artifact, or a list of artifacts that `dsl.Collected` collects from a loop."""
    from kfp.dsl import Collected
    from kfp.dsl.pipeline_channel import PipelineArtifactChannel

    # getattr(value, "is_artifact_channel", False) would be true for the item of a loop, which has every attribute.
    if isinstance(value, Collected):
        return bool(value.is_artifact_channel)
    return isinstance(value, PipelineArtifactChannel)


def artifact_problem(name: str) -> str:
    """Returns why an artifact cannot be the value of an input, and how its content can reach the training."""
    return (
        f"{name} is an artifact, which has no text; add a task that copies the artifact to the workspace, return the"
        " path from this task and pass it in args (docs/kfp.md, Data from an artifact), or use distribute, whose"
        " function can have artifacts as inputs"
    )


def _is_plain(name: str, value: Any) -> bool:
    """Returns whether KFP passes an input unchanged."""
    if is_channel(value):
        return not is_artifact(value) and (name not in WORDS or type_of(value) not in ("List", "Dict"))
    if isinstance(value, (int, float)):
        return True
    if isinstance(value, str):
        return value in PLACEHOLDERS or _is_inert(value.replace(WORKSPACE, ""))
    return name not in TEXT_FIELDS and not isinstance(value, tuple) and _is_constant({name: value})


def _is_inert(text: str) -> bool:
    return "{{" not in text and not _ALTERED.search(text) and not _IMPOSSIBLE.search(text)


def _is_constant(value: Any) -> bool:
    """Returns whether KFP passes a constant value unchanged."""
    if isinstance(value, str):
        return _is_inert(value)
    if isinstance(value, Mapping):
        return all(
            isinstance(key, str) and _is_inert(key) and _is_constant(item) and not (key == "env" and _has_order(item))
            for key, item in value.items()
        )
    if isinstance(value, (list, tuple)):
        return all(map(_is_constant, value))
    return not is_channel(value) and not isinstance(value, Scalar) and not _is_changed_number(value)


def _has_order(env: Any) -> bool:
    """Returns whether `env` is a mapping whose order matters, because a variable can refer to earlier variables.

    KFP passes a mapping as a protobuf Struct, which has no order.
    """
    return isinstance(env, Mapping) and len(env) > 1


def _is_changed_number(value: Any) -> bool:
    """Returns whether KFP changes a number. KFP passes each number as a double.

    The step cannot distinguish 1.0 from 1. Large integers are rounded. JSON cannot represent NaN and infinity.
    """
    if isinstance(value, float):
        return value.is_integer() or abs(value) == float("inf") or value != value
    return isinstance(value, int) and abs(value) > _MAX_EXACT


def _number_source(value: float) -> str:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return ".nan" if value != value else f"{'-' if value < 0 else ''}.inf"
    return str(value)


def first_free(name: str, taken: Collection[str], separator: str = "-") -> str:
    """Returns `name`, or `name` with a number if `name` is in `taken`.

    The function tries the numbers 2, 3 and so on until the result is not in `taken`.

    >>> first_free("train", {"train", "train-2"})
    'train-3'
    """
    names = chain([name], (f"{name}{separator}{number}" for number in count(2)))
    return next(each for each in names if each not in taken)
