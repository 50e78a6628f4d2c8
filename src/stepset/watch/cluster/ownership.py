"""Decides which objects belong to a workload.

An object belongs to its controller. The controller is the owner with `controller: true`. stepset identifies the
controller by its uid. Labels and annotations are not used, because the creator of a pod chooses its labels and
annotations. The creator also chooses the owners. Therefore a pod alone does not prove that its run has finished. The
status of the pod's controller must agree (docs/design/following.md, Forged objects).
"""

from __future__ import annotations

from typing import NamedTuple

from stepset.targets.metadata import RUN
from stepset.unstructured import Fields, part, rows, text


class UnreadableObjectError(ValueError):
    """A value of an object is invalid or missing, and the object cannot be used without this value."""


class Owner(NamedTuple):
    """The controller of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""


_NONE = Owner()


def controller_of(data: Fields) -> Owner:
    """Returns the controller of an object.

    If the object has no controller or several controllers, all fields of the returned Owner are empty.
    """
    found = [row for row in rows(part(data, "metadata"), "ownerReferences") if row.get("controller") is True]
    if len(found) != 1:
        return _NONE
    return Owner(text(found[0], "kind"), text(found[0], "name"), text(found[0], "uid"))


def owner_of(data: Fields) -> str:
    """Returns the uid of the object that decides to which run an object belongs, or "" if there is no such object.

    An event belongs to the run of the object that the event is about. A Workload of Kueue may have an owner that is not
    its controller.
    """
    if text(data, "kind") == "Event":
        return text(part(data, "involvedObject") or part(data, "regarding"), "uid")
    found = controller_of(data).uid
    if not found and text(data, "kind") == "Workload":
        found = next((text(row, "uid") for row in rows(part(data, "metadata"), "ownerReferences")), "")
    return found


def is_run(data: Fields) -> bool:
    """Returns whether an object is the workload of a run. Such an object has the run's label and no controller."""
    meta = part(data, "metadata")
    return RUN in part(meta, "labels") and not any(row.get("controller") for row in rows(meta, "ownerReferences"))


def run_of(data: Fields) -> str:
    """Returns the name of the run in an object's labels, or "" if the labels contain no such name.

    Events and Kueue's Workloads have no such label. They refer to an object, and belong to the run of this object.
    """
    labels = part(data, "metadata", "labels")
    return text(labels, RUN) or text(labels, "jobset.sigs.k8s.io/jobset-name")


def uid_of(data: Fields) -> str:
    """Returns the uid of an object, or "" if it has none."""
    return text(part(data, "metadata"), "uid")


def name_of(data: Fields) -> str:
    """Returns the kind and the name of an object for a message."""
    return f"{text(data, 'kind')} {text(part(data, 'metadata'), 'name')}"
