"""Decides what happens to the run of a step that has exited and is not retried (docs/design/orphans.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.backends.kubernetes.orphans.watcher import PLACEMENT
from stepset.backends.orphan_policy import UNAVAILABLE, OrphanStop, WorkflowStep
from stepset_kfp.step.owner import Identity

_MAIN = "main"
"""Argo's name for the container of the step."""


def orphan_stop(
    given: Mapping[str, Any], identity: Identity | None, pod: Mapping[str, Any], namespace: str
) -> tuple[OrphanStop | None, str]:
    """Returns a tuple of two elements.

    The first element states how a watcher in the cluster ends the run after the last try of the step has exited. The
    element is None if the run continues without the step. The second element is a note for the log. The note is empty
    if there is nothing to report.

    Args:
        given: the inputs of the component.
        identity: the identity of the step, or None outside of a pipeline's pod.
        pod: the pod of the step. The watcher uses the image of this pod.
    """
    on_orphan, on_interrupt = given.get("on_orphan") or "", given["on_interrupt"]
    if on_orphan == "keep" or (not on_orphan and (on_interrupt == "leave" or identity is None)):
        return None, ""
    workflow = identity.owned_by if identity is not None and identity.namespace == namespace else None
    if identity is None or workflow is None:
        needs = "the step must run in a Workflow's pod, in the namespace of the run"
        return None, f"{UNAVAILABLE}: {needs}"
    step = WorkflowStep(str(workflow["name"]), str(workflow["uid"]), identity.node)
    return OrphanStop(step, "delete" if on_interrupt == "delete" else "suspend", _image_and_placement(pod)), ""


def _image_and_placement(pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = pod["spec"]
    container = next((each for each in spec["containers"] if each["name"] == _MAIN), spec["containers"][0])
    return {"image": container["image"], **{key: spec[key] for key in PLACEMENT if spec.get(key)}}
