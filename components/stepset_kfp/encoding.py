"""Decodes the input `encoded_inputs`. This input contains values that KFP or Argo would change in other inputs.

An encoded value is a mapping with a single key. The key begins with `$`, and is called the form of the value. The form
determines how the value is decoded. docs/design/kfp-inputs.md describes the forms. authoring/encoding.py encodes the
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from stepset.errors import BadInputError
from stepset.spec.yamlfile import read_yaml

ENCODED_INPUTS = "encoded_inputs"
"""Name of the input with encoded values."""
ENCODED_ARGUMENTS = "stepset_encoded_inputs"
"""Name of the input with encoded values of a component that `distribute` returned."""

VALUE = "$value"
"""The form of a run-time value. The content is the name of the task's input that contains this value."""
FLOAT = "$float"
"""The form of a run-time value of KFP's type Double. The content is the name of the input that contains this value."""
TEXT = "$text"
"""The form of a string that consists of several parts. The content is the list of the parts."""
JSON = "$json"
"""The form of a constant string. The content is the string as ASCII JSON without `{{`."""
SOURCE = "$source"
"""The form of a number or a boolean. The content is the value as YAML."""
ITEMS = "$items"
"""The form of a mapping. The content is a list of pairs. Each pair is a list of a key and a value."""
TEXTS = "$texts"
"""The form of a list or mapping that is known only at run time.

The content is the name of the input that contains this value. The items of the list, or the values of the mapping, are
converted to strings."""
FORMS = frozenset((VALUE, FLOAT, TEXT, JSON, SOURCE, ITEMS, TEXTS))

INPUT_FLAG = "--executor_input"
"""The option of a step, and of KFP's launcher, whose value is the executor input."""


def with_decoded_inputs(inputs: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs of a component, including the decoded values of the input `encoded_inputs`.

    If `encoded_inputs` contains the name of another input, the decoded value replaces the value of that input. Floats
    without a fraction become integers.

    Args:
        inputs: the component's inputs.
        values: all parameters of the task, as KFP passes them.

    Raises:
        BadInputError: `encoded_inputs` is not a mapping, or contains a value that cannot be decoded.
    """
    encoded = inputs.get(ENCODED_INPUTS) or {}
    if not isinstance(encoded, Mapping):
        raise BadInputError(
            f"{ENCODED_INPUTS}: not a mapping; use stepset_kfp.distributed_train, which sets this input"
        )
    others = {name: whole(value) for name, value in inputs.items() if name != ENCODED_INPUTS}
    return {**others, **{str(name): decode(value, values) for name, value in encoded.items()}}


def parameters_of(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Returns the parameters of the task from a step's command line.

    KFP passes the executor input, which contains the parameters, as one JSON argument (kfp.dsl.executor_main). If the
    command line contains no executor input, the function returns an empty mapping.
    """
    if INPUT_FLAG not in arguments[:-1]:
        return {}
    executor_input = json.loads(arguments[list(arguments).index(INPUT_FLAG) + 1])
    parameters: Mapping[str, Any] = executor_input.get("inputs", {}).get("parameterValues", {})
    return parameters


def decode(encoded: Any, values: Mapping[str, Any]) -> Any:
    """Returns the value that was encoded. Raises BadInputError if `encoded` cannot be decoded.

    >>> decode({"$text": ["--data=", {"$value": "value_data"}]}, {"value_data": 'a "b"'})
    '--data=a "b"'
    >>> decode([{"$float": "rate"}, {"$float": "name"}], {"rate": 1, "name": "fit-1"})
    [1.0, 'fit-1']
    """
    if isinstance(encoded, Mapping):
        form = next(iter(encoded)) if len(encoded) == 1 else None
        if form in FORMS:
            return _decode_form(str(form), encoded[form], values)
        return {key: decode(item, values) for key, item in encoded.items()}
    if isinstance(encoded, (list, tuple)):
        return [decode(item, values) for item in encoded]
    return encoded


def _decode_form(form: str, content: Any, values: Mapping[str, Any]) -> Any:
    try:
        if form == VALUE:
            return whole(values.get(content))
        if form == TEXTS:
            return _texts(values.get(content))
        if form == FLOAT:
            value = values[content]
            # KFP gives all fields of a loop's item the type of the first field. A field with text remains text.
            return value if isinstance(value, str) else float(value)
        if form == JSON:
            return json.loads(content)
        if form == SOURCE:
            return read_yaml(content)
        if form == ITEMS:
            return {_key(decode(key, values)): decode(item, values) for key, item in content}
        return "".join(as_text(decode(part, values)) for part in content)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, yaml.YAMLError) as error:
        raise BadInputError(
            f"{ENCODED_INPUTS}: {form}: {content!r} cannot be read; compile the pipeline again"
        ) from error


def as_text(value: Any) -> str:
    """Converts the value of a parameter to a string for a command-line argument or an environment variable.

    >>> as_text(True), as_text(2.0), as_text([1.0, "é"])
    ('true', '2.0', '[1, "é"]')
    """
    if value is None:
        return ""
    if isinstance(value, (str, float)) and not isinstance(value, bool):
        return str(value)
    return json.dumps(whole(value), ensure_ascii=False)


def _texts(value: Any) -> Any:
    """Converts the items of a list, or the values of a mapping, to strings. Keeps values that are mappings.

    In `env`, a value that is a mapping refers to a Secret.

    >>> _texts(["x", 1.0, True, [1.0]]), _texts({"A": False, "B": {"secret": "s", "key": "k"}})
    (['x', '1', 'true', '[1]'], {'A': 'false', 'B': {'secret': 's', 'key': 'k'}})
    """
    value = whole(value)
    if isinstance(value, Mapping):
        return {key: item if isinstance(item, Mapping) else as_text(item) for key, item in value.items()}
    return [as_text(item) for item in value] if isinstance(value, (list, tuple)) else value


def whole(value: Any) -> Any:
    """Converts all floats without a fraction to integers. Lists and mappings in the value are also converted.

    KFP passes lists and mappings as a protobuf Struct, in which every number is a double (kubeflow/pipelines#11004).
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(item) for item in value]
    return value


def _key(key: Any) -> Any:
    return key if isinstance(key, str) else as_text(key)
