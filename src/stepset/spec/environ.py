"""The models of the environment variables in a job file.

The value of a variable is a string, a key of a Secret or a field of the pod.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from stepset.spec.base import JobModel, Switch, unknown_keys, validation_error
from stepset.spec.scalars import as_text, not_text, plain

_KEYS = ("value", "secret", "key", "field", "override")
_IN_TEMPLATE = "the variable in pod_template, as {{containers: [{{name: node, env: [{{name: NAME, valueFrom: {}}}]}}]}}"
_FROM_CONFIG_MAP = _IN_TEMPLATE.format("{configMapKeyRef: {name: NAME, key: KEY}}")
# Field of a variable in the Kubernetes API -> the equivalent in a job file.
_SOURCES = {
    "secretKeyRef": "{secret: NAME, key: KEY}",
    "fieldRef": "{field: PATH}",
    "configMapKeyRef": _FROM_CONFIG_MAP,
    "resourceFieldRef": _IN_TEMPLATE.format("{resourceFieldRef: {resource: limits.cpu}}"),
    "fileKeyRef": _IN_TEMPLATE.format("{fileKeyRef: {volumeName: NAME, path: PATH, key: KEY}}"),
}
_VALUE_FROM = "valueFrom"
_OF_KUBERNETES = {
    _VALUE_FROM: "{secret: NAME, key: KEY} or {field: PATH}",
    **_SOURCES,
    "configMap": _FROM_CONFIG_MAP,
    "configMapName": _FROM_CONFIG_MAP,
}
# Field of a variable in the Kubernetes API -> the key of the same meaning in a job file.
_KEYS_OF_KUBERNETES = {"secretKey": "key", "secretName": "secret", "fieldPath": "field"}
_NAMES = (*_OF_KUBERNETES, *_KEYS_OF_KUBERNETES)
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
        raise validation_error(*(((), text) for text in unknown_keys(unknown, _KEYS, _key_hint)))
    if "secret" in value or ("key" in value and value.keys() <= {"key", "override"}):
        return EnvSecret
    return EnvField if "field" in value else EnvText


def _form(key: str, value: dict[Any, Any]) -> str | None:
    """Returns how to write a variable in a job file. `key` is a field of the variable in the Kubernetes API.

    Returns None if `key` is no such field.
    """
    name = _nearest(key, _NAMES)
    source = value.get(key)
    if name == _VALUE_FROM and isinstance(source, dict):
        name = next(filter(None, (_nearest(str(inner), _SOURCES) for inner in source)), name)
    return None if name is None else _OF_KUBERNETES.get(name)


def _key_hint(key: str) -> str:
    name = _nearest(key, _NAMES)
    return f"did you mean {_KEYS_OF_KUBERNETES[name]!r}?" if name in _KEYS_OF_KUBERNETES else ""


def _nearest(key: str, names: Iterable[str]) -> str | None:
    """Returns the name that `key` is a spelling of, such as `secret_key_ref`. Returns None if there is no such name."""
    by_letters = {name.lower(): name for name in names}
    letters = key.replace("_", "").lower()
    close = [letters] if letters in by_letters else difflib.get_close_matches(letters, by_letters, n=1, cutoff=0.8)
    return by_letters[close[0]] if close else None


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
