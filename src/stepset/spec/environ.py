"""The models of the environment variables in a job file.

The value of a variable is a string, a key of a Secret or a field of the pod.
"""

from __future__ import annotations

import datetime
import difflib
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from stepset.spec.base import JobModel, Switch, did_you_mean, snake_case, unknown_keys, validation_error
from stepset.spec.scalars import as_text, not_text, plain

_KEYS = ("value", "secret", "key", "field", "override")
_IN_TEMPLATE = "the variable in pod_template, as {{containers: [{{name: node, env: [{{name: NAME, valueFrom: {}}}]}}]}}"
_FROM_CONFIG_MAP = _IN_TEMPLATE.format("{configMapKeyRef: {name: NAME, key: KEY}}")
# Field of a variable in the Kubernetes API, in snake case -> the equivalent in a job file.
_FORMS = {
    "value_from": "{secret: NAME, key: KEY} or {field: PATH}",
    "secret_key_ref": "{secret: NAME, key: KEY}",
    "field_ref": "{field: PATH}",
    "config_map_key_ref": _FROM_CONFIG_MAP,
    "resource_field_ref": _IN_TEMPLATE.format("{resourceFieldRef: {resource: limits.cpu}}"),
    "file_key_ref": _IN_TEMPLATE.format("{fileKeyRef: {volumeName: NAME, path: PATH, key: KEY}}"),
    "config_map": _FROM_CONFIG_MAP,
    "config_map_name": _FROM_CONFIG_MAP,
}
# Field of a variable in the Kubernetes API, in snake case -> the key of the same meaning in a job file.
_OTHER_NAMES = {"secret_key": "key", "secret_name": "secret", "field_path": "field"}
_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")


class EnvText(JobModel):
    """A variable with a plain value. The value may contain references `$(NAME)` to other variables."""

    value: Annotated[str, BeforeValidator(as_text)]
    """The value of the variable. `$$` in the value is replaced with `$`. To pass `$$`, write `$$$$`."""
    override: Switch = False
    """Whether to replace a variable that stepset sets."""

    @model_serializer
    def _shortest_form(self) -> Any:
        return {"value": self.value, "override": True} if self.override else self.value


class EnvSecret(JobModel):
    """A variable with the value of a Secret's key. In stored data and reports, stepset replaces the value with `***`.

    docs/security.md lists the exceptions.
    """

    secret: str = Field(min_length=1)
    """The name of a Secret in the namespace of the run."""
    key: str = Field(min_length=1)
    """The key in the Secret."""
    override: Switch = False
    """Whether to replace a variable that stepset sets."""


class EnvField(JobModel):
    """A variable with the value of a field of the pod, such as status.hostIP."""

    field: str = Field(min_length=1)
    """The path of the field, as in `fieldRef` of the Kubernetes API."""
    override: Switch = False
    """Whether to replace a variable that stepset sets."""


EnvVar = EnvText | EnvSecret | EnvField


def _as_mapping(value: Any) -> Any:
    if isinstance(plain(value), (str, bool, int, float)):
        return EnvText(value=as_text(value))
    if isinstance(value, dict):
        return _model_of(value).model_validate(value)
    if isinstance(value, (EnvText, EnvSecret, EnvField)):
        return value
    if value is None or isinstance(plain(value), datetime.date):
        raise ValueError(not_text(value))
    raise ValueError(f"{value!r} is not a value; write text, {{secret: NAME, key: KEY}} or {{field: PATH}}")


def _model_of(value: dict[Any, Any]) -> type[EnvText | EnvSecret | EnvField]:
    """Returns the model class of a variable. Raises ValueError or ValidationError if the mapping has an unknown key."""
    if unknown := [str(key) for key in value if key not in _KEYS]:
        for key in unknown:
            if form := _form(key, value):
                raise ValueError(f"{key} is not known here; write {form}")
        raise validation_error(*(((), text) for text in unknown_keys(unknown, _KEYS, _hint)))
    if "secret" in value or ("key" in value and value.keys() <= {"key", "override"}):
        return EnvSecret
    return EnvField if "field" in value else EnvText


def _form(key: str, value: dict[Any, Any]) -> str | None:
    """Returns how to write a variable in a job file. `key` is a field of the variable in the Kubernetes API.

    Returns None if `key` is no such field.
    """
    name = _field_of_kubernetes(key)
    source = value.get(key)
    if name == "value_from" and isinstance(source, dict):
        name = next(filter(_FORMS.get, map(_field_of_kubernetes, map(str, source))), name)
    return _FORMS.get(name)


def _hint(key: str) -> str:
    return did_you_mean(_OTHER_NAMES.get(_field_of_kubernetes(key)))


def _field_of_kubernetes(key: str) -> str:
    """Returns the field of the Kubernetes API that `key` is a spelling of, or "" if there is no such field."""
    return next(iter(difflib.get_close_matches(snake_case(key), (*_FORMS, *_OTHER_NAMES), n=1, cutoff=0.8)), "")


def _check_env(env: dict[str, EnvVar]) -> dict[str, EnvVar]:
    for name, var in env.items():
        if not _NAME.fullmatch(name):
            first = ", and do not begin with a digit" if _NAME.fullmatch(f"_{name}") else ""
            raise ValueError(f"{name!r} is not a variable name; use letters, digits, '_', '-' and '.'{first}")
        if name.startswith("PET_") and isinstance(var, EnvText) and not var.value:
            # torchrun uses an empty variable as the value of an option, and fails (torch 2.13, argparse_util.py).
            raise ValueError(f"{name} is empty, which torchrun takes for a value; leave it out")
    return env


Env = Annotated[
    dict[str, Annotated[EnvVar, BeforeValidator(_as_mapping)]], AfterValidator(_check_env), Field(default_factory=dict)
]
