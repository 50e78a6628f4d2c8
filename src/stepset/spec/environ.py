"""Environment variables of a job file: a text, a key of a Secret, or a field of the pod."""

from __future__ import annotations

import datetime
import difflib
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from stepset.spec.base import JobModel, Switch, nearest, validation_error
from stepset.spec.scalars import as_text, not_text, plain

_KEYS = ("value", "secret", "key", "field", "override")
_IN_TEMPLATE = "it in pod_template, as {containers: [{name: node, env: [...]}]}"
# Fields of Kubernetes' variables -> their form in a job file.
_OF_KUBERNETES = {
    "valueFrom": "{secret: NAME, key: KEY} or {field: PATH}",
    "secretKeyRef": "{secret: NAME, key: KEY}",
    "fieldRef": "{field: PATH}",
    "configMapKeyRef": _IN_TEMPLATE,
    "resourceFieldRef": _IN_TEMPLATE,
}
_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")


class EnvText(JobModel):
    """A variable with a plain value; `$(NAME)` in it is expanded as in Kubernetes."""

    value: Annotated[str, BeforeValidator(as_text)]
    override: Switch = False
    """Whether to replace a variable that stepset sets."""

    @model_serializer
    def _shortest_form(self) -> Any:
        return {"value": self.value, "override": True} if self.override else self.value


class EnvSecret(JobModel):
    """A variable read from a key of a Secret. stepset stores `***` for its value; docs/security.md lists exceptions."""

    secret: str = Field(min_length=1)
    key: str = Field(min_length=1)
    override: Switch = False


class EnvField(JobModel):
    """A variable read from a field of the pod, such as status.hostIP."""

    field: str = Field(min_length=1)
    override: Switch = False


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
    """Returns the model class of a variable; raises ValueError or ValidationError if the mapping has an unknown key."""
    if "secret" in value or ("key" in value and value.keys() <= {"key", "override"}):
        return EnvSecret
    if "field" in value:
        return EnvField
    if "value" not in value and (unknown := [key for key in value if key not in _KEYS]):
        if form := next((form for name, form in _OF_KUBERNETES.items() if _is_near(unknown[0], name)), None):
            raise ValueError(f"{unknown[0]} is not known here; write {form}")
        raise validation_error(*(((), f"unknown key {key!r}; {nearest(str(key), _KEYS)}") for key in unknown))
    return EnvText


def _is_near(key: Any, name: str) -> bool:
    plain_key = str(key).replace("_", "").lower()
    return plain_key == name.lower() or bool(difflib.get_close_matches(plain_key, [name.lower()], cutoff=0.8))


def _check_env(env: dict[str, EnvVar]) -> dict[str, EnvVar]:
    for name, var in env.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a variable name; use letters, digits, '_', '-' and '.'")
        if name.startswith("PET_") and isinstance(var, EnvText) and not var.value:
            # torchrun takes an empty PET_ variable for a value and fails (torch 2.13, argparse_util.py).
            raise ValueError(f"{name} is empty, which torchrun takes for a value; leave it out")
    return env


Env = Annotated[
    dict[str, Annotated[EnvVar, BeforeValidator(_as_mapping)]], AfterValidator(_check_env), Field(default_factory=dict)
]
