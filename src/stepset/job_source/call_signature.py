"""Lists the fields of a job file in the signatures of the Python API."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

from stepset.defaults import JOB_FIELDS

_Function = TypeVar("_Function", bound=Callable[..., Any])


def lists_job_fields(function: _Function) -> _Function:
    """Replaces `**fields` in the signature of a function by the fields of a job file, and by `include`.

    The function is not changed. `help` and the completion of IPython then show the fields. The default None means that
    the field is not given.
    """
    given = signature(function)
    own = [each for each in given.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    names = (*JOB_FIELDS, "include")
    fields = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation="Any") for name in names]
    function.__signature__ = given.replace(parameters=[*own, *fields])  # type: ignore[attr-defined]  # PEP 362
    return function
