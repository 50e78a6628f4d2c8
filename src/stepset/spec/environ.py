"""Environment variables as a job file gives them: a text, a key of a Secret, or a field of the pod."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from stepset.spec.base import JobModel

_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")


class EnvText(JobModel):
    """A variable with a plain value; `$(NAME)` in it is expanded as Kubernetes does."""

    value: str
    override: bool = False
    """Take a name that stepset would set itself."""

    @model_serializer
    def _shortest_form(self) -> Any:
        return {"value": self.value, "override": True} if self.override else self.value


class EnvSecret(JobModel):
    """A variable read from a key of a Secret; its value never passes through stepset's files."""

    secret: str = Field(min_length=1)
    key: str = Field(min_length=1)
    override: bool = False


class EnvField(JobModel):
    """A variable read from a field of the pod, such as status.hostIP."""

    field: str = Field(min_length=1)
    override: bool = False


EnvVar = EnvText | EnvSecret | EnvField


def scalar_text(value: Any) -> Any:
    """The text of a bare YAML value in an environment; other values are returned as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _as_mapping(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return EnvText(value=scalar_text(value))
    if isinstance(value, dict):
        for key, model in (("secret", EnvSecret), ("field", EnvField)):
            if key in value:
                return model.model_validate(value)
        return EnvText.model_validate({**value, "value": scalar_text(value["value"])} if "value" in value else value)
    if isinstance(value, (EnvText, EnvSecret, EnvField)):
        return value
    raise ValueError(f"{value!r} is not a value; write text, {{secret: NAME, key: KEY}} or {{field: PATH}}")


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
