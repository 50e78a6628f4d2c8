"""The models of the environment variables in a job file.

The value of a variable is a string, a key of a Secret or a field of the pod.
"""

from __future__ import annotations

import datetime
import difflib
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from stepset.spec.base import JobModel, Switch, unknown_keys, validation_error
from stepset.spec.scalars import as_text, not_text, plain

_KEYS = ("value", "secret", "key", "field", "override")
_IN_TEMPLATE = "it in pod_template, as {containers: [{name: node, env: [...]}]}"
# Field of a variable in the Kubernetes API -> the equivalent in a job file.
_OF_KUBERNETES = {
    "valueFrom": "{secret: NAME, key: KEY} or {field: PATH}",
    "secretKeyRef": "{secret: NAME, key: KEY}",
    "fieldRef": "{field: PATH}",
    "configMapKeyRef": _IN_TEMPLATE,
    "resourceFieldRef": _IN_TEMPLATE,
}
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
    if "secret" in value or ("key" in value and value.keys() <= {"key", "override"}):
        return EnvSecret
    if "field" in value:
        return EnvField
    if "value" not in value and (unknown := [key for key in value if key not in _KEYS]):
        if form := next((form for name, form in _OF_KUBERNETES.items() if _is_near(unknown[0], name)), None):
            raise ValueError(f"{unknown[0]} is not known here; write {form}")
        raise validation_error(*(((), text) for text in unknown_keys(map(str, unknown), _KEYS)))
    return EnvText


def _is_near(key: Any, name: str) -> bool:
    plain_key = str(key).replace("_", "").lower()
    return plain_key == name.lower() or bool(difflib.get_close_matches(plain_key, [name.lower()], cutoff=0.8))


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
