"""The base of every model of the job file: frozen, and unknown keys are errors that name the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'num_nodes'?`, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"


class JobModel(BaseModel):
    """A part of the job file. Frozen; keys it does not know are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key '{key}'; {hint}",
                        {"key": str(key), "hint": nearest(str(key), cls.model_fields)},
                    )
        return data
