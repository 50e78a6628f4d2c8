"""The data of a target. Each module of this package contains one `TargetCase`, with the name `CASE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.targets.making import Manifest


class OwnField(NamedTuple):
    """A field of the job file that only some targets have.

    Args:
        value: a valid value.
        values: valid values.
        odd: values on both sides of a limit of Kubernetes. stepset must accept and reject the same values as the API
            server.
        rendered: returns the value from the manifests.
        refused: an invalid value, and the start of the error after the path of the field.
    """

    value: Any
    values: st.SearchStrategy[Any]
    odd: st.SearchStrategy[Any]
    rendered: Callable[[list[Manifest]], Any]
    refused: tuple[Any, str]


class Refusal(NamedTuple):
    """A job that the target does not support.

    Args:
        job: fields of the job.
        start: the start of the error.
    """

    job: Mapping[str, Any]
    start: str


@dataclass(frozen=True, kw_only=True)
class TargetCase:
    """The data of a target.

    Args:
        objects: the kinds of the rendered objects of a run besides the ConfigMaps, in the order of their creation.
        unsupported: the names of the examples that the target does not support, and for each, a part of the error.
        name_budgets: numbers of nodes, and for each, the maximum length of a run's name.
        refused: jobs that the target does not support, but the target jobset.
        own_fields: the fields that only some targets have, by their paths in the job file.
        mapped: paths of fields in the last object, and for each, the field of the job file.
    """

    objects: tuple[str, ...]
    unsupported: Mapping[str, str]
    name_budgets: Mapping[int, int]
    refused: tuple[Refusal, ...]
    own_fields: Mapping[str, OwnField]
    mapped: Mapping[str, str]


LAUNCHER: Mapping[str, Any] = {"framework": "mpi", "procs_per_node": 1}
RETRIED_UNLESS_USER_ERROR: Mapping[str, Any] = {"restart": {"max_restarts": 1, "user_errors": "fail"}}
