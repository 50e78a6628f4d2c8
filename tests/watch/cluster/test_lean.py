"""What is kept of objects where those of a whole namespace are kept: enough for every state, and nothing secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.watch.cluster.change import Change
from stepset.watch.cluster.lean import lean
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.state import RunStatus
from tests.watch.cluster.streams import NAMES, stream

SECRET = "a-token-of-somebody"
Object = dict[str, Any]


def dressed(change: Change) -> Change:
    """An object as a server has it: with its history, and with what its pods are to be."""
    each = json.loads(json.dumps(change.object))
    each["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:suspend": {}}}}]
    each["metadata"].setdefault("annotations", {})["kubectl.kubernetes.io/last-applied-configuration"] = SECRET
    spec = each.get("spec", {})
    kind = each["kind"]
    if kind == "Pod":
        for container in spec.get("containers", ()):
            container["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
        spec["volumes"] = [{"name": "a", "emptyDir": {}}]
    if kind in ("Job", "StatefulSet"):
        _with_template(spec)
    if kind == "JobSet":
        for row in spec["replicatedJobs"]:
            _with_template(row["template"]["spec"])
    if kind == "TrainJob":
        spec.setdefault("trainer", {})["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
    return Change(change.verb, each, change.witnessed)


def _with_template(spec: Object) -> None:
    container = {"name": "node", "image": "i", "env": [{"name": "HF_TOKEN", "value": SECRET}]}
    spec["template"] = {"spec": {"containers": [container]}}


def states(changes: list[Change]) -> list[RunStatus]:
    """The state after each change."""
    objects, found = RunObjects("run"), []
    for change in changes:
        objects.see(change)
        found.append(status_of(objects, Reports(), 0.0))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_state_is_the_same_without_the_rest(name: str) -> None:
    full = [dressed(change) for change in stream(name)]
    cut = [Change(change.verb, lean(change.object), change.witnessed) for change in full]
    assert states(cut) == states(full)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_of_variables_and_histories(name: str) -> None:
    for change in stream(name):
        words = json.dumps(lean(dressed(change).object))
        assert SECRET not in words and "managedFields" not in words


def test_volcanos_deadline_is_in_its_template_and_is_kept() -> None:
    template = {"spec": {"activeDeadlineSeconds": 60, "containers": [{"name": "node", "env": []}]}}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "run", "uid": "u"},
        "spec": {"tasks": [{"name": "node", "replicas": 2, "policies": [], "template": template}]},
    }
    cut: Any = lean(job)
    assert cut["spec"]["tasks"] == [
        {"name": "node", "replicas": 2, "policies": [], "template": {"spec": {"activeDeadlineSeconds": 60}}}
    ]


def test_the_object_that_was_given_is_not_changed() -> None:
    given = dressed(stream("jobset_fails")[0]).object
    before = json.dumps(given)
    lean(given)
    assert json.dumps(given) == before
