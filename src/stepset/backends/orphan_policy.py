"""The settings of `on_orphan: stop`: the owner of a run, and how the run is stopped after its owner has ended.

Contains only pure functions and data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepset.errors import BadInputError

ON_ORPHAN = ("stop", "keep")
"""The possible values of `on_orphan`: what happens to a run after its owner has ended and will not be retried."""
UNAVAILABLE = "on_orphan: stop is not available, the run continues when its owner has ended"
"""The start of the note on a run that no watcher stops after its owner has ended."""


def check_on_orphan(given: str, name: str = "on_orphan") -> None:
    """Raises BadInputError for an unknown value. `name` is the name of the option in the message."""
    if given not in ON_ORPHAN:
        raise BadInputError(f"{name}: {given!r} is not known; use one of {', '.join(ON_ORPHAN)}")


@dataclass(frozen=True)
class WorkflowStep:
    """A step of an Argo Workflow in the namespace of the run.

    Args:
        node: the name of the step's node, without the numbers that count retries, such as `(0)`.
    """

    workflow: str
    uid: str
    node: str


@dataclass(frozen=True)
class OwnerPod:
    """A pod in the namespace of the run. A process in this pod started the run."""

    name: str
    uid: str


@dataclass(frozen=True)
class OrphanStop:
    """How to stop a run after its owner has ended and will not be retried.

    Args:
        owner: the owner of the run.
        how: whether the run is suspended or deleted. A run that would not stay suspended is deleted.
        pod: the fields `image`, `imagePullSecrets`, `nodeSelector` and `tolerations` of the watcher's pod. Default: the
            fields of the training pods.
    """

    owner: WorkflowStep | OwnerPod
    how: Literal["suspend", "delete"]
    pod: Mapping[str, Any] = field(default_factory=dict)
