"""Pruned objects contain the fields of every state, and no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.run_status import RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change, decode_event, decode_list
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import NAMES, stream

SECRET = "a-secret-token"
Object = dict[str, Any]


def dressed(change: Change) -> Change:
    """Adds the fields that a server also returns: managed fields, pod templates, variables."""
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
    return Change(change.verb, each, change.observed)


def _with_template(spec: Object) -> None:
    container = {"name": "node", "image": "i", "env": [{"name": "HF_TOKEN", "value": SECRET}]}
    spec["template"] = {"spec": {"containers": [container]}}


def decoded(change: Change) -> Change:
    """A change as a watch reports it."""
    line = json.dumps({"type": change.verb, "object": change.object}).encode()
    return Change(change.verb, decode_event(line)["object"], change.observed)


def states(changes: list[Change]) -> list[RunStatus]:
    """The state after each change."""
    objects, found = RunObjects("run"), []
    for change in changes:
        objects.see(change)
        found.append(status_of(objects, Reports(), 0.0))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_state_is_the_same_with_pruned_objects(name: str) -> None:
    full = [dressed(change) for change in stream(name)]
    assert states([decoded(change) for change in full]) == states(full)
    for change in full:
        item = {key: value for key, value in change.object.items() if key not in ("kind", "apiVersion")}
        kind = change.object["kind"]
        page = {"kind": f"{kind}List", "apiVersion": "v", "metadata": {"resourceVersion": "7"}, "items": [item]}
        (found,) = decode_list(json.dumps(page).encode())["items"]
        assert {"kind": kind, "apiVersion": change.object["apiVersion"], **found} == decoded(change).object


@pytest.mark.parametrize("name", NAMES)
def test_variables_and_managed_fields_are_removed(name: str) -> None:
    for change in stream(name):
        words = json.dumps(decoded(dressed(change)).object)
        assert SECRET not in words and "managedFields" not in words


def test_volcanos_restarts_and_the_deadline_in_its_pod_template_are_kept() -> None:
    template = {"spec": {"activeDeadlineSeconds": 60, "containers": [{"name": "node", "env": []}]}}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "run", "uid": "u"},
        "spec": {"maxRetry": 3, "tasks": [{"name": "node", "replicas": 2, "policies": [], "template": template}]},
    }
    cut: Any = decoded(Change("ADDED", job)).object
    assert cut["spec"]["maxRetry"] == 3
    assert cut["spec"]["tasks"] == [
        {"name": "node", "replicas": 2, "policies": [], "template": {"spec": {"activeDeadlineSeconds": 60}}}
    ]


@pytest.mark.parametrize(
    ("field", "odd"),
    [("metadata", None), ("metadata", 5), ("spec", []), ("status", "text"), ("spec", {"containers": [None, 5]})],
)
def test_an_object_with_unexpected_types_is_decoded_whole_and_does_not_affect_others(field: str, odd: object) -> None:
    good = {
        "metadata": {"name": "a", "uid": "1"},
        "spec": {"nodeName": "n", "tolerations": []},
        "status": {"phase": "x"},
    }
    page = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [good, {**good, field: odd}, good]}
    first, other, last = decode_list(json.dumps(page).encode())["items"]
    assert first == last == {**good, "spec": {"nodeName": "n"}}
    assert other == {**good, field: odd}


def test_items_that_are_not_objects_are_omitted() -> None:
    assert decode_list(b'{"kind": "PodList", "items": [1, null, "a", [], {}]}')["items"] == [{}]


def test_a_response_that_is_not_a_list_is_decoded_whole() -> None:
    status = {"kind": "Status", "code": 403, "message": "no", "details": {"kind": "pods"}}
    assert decode_list(json.dumps(status).encode()) == status
    assert decode_list(b'{"items": null, "a": 1}') == {"items": None, "a": 1}


@pytest.mark.parametrize("line", [b"", b"no", b"[]", b'{"type": 5, "object": {}}', b'{"object": {}}', b"{" * 5000])
def test_a_line_that_is_not_a_watch_event_raises_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a watch event"):
        decode_event(line)


def test_a_list_keeps_its_version_and_continue_token() -> None:
    about = {"resourceVersion": "7", "continue": "abc"}
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": []}
    assert decode_list(json.dumps(body).encode()) == body


@pytest.mark.parametrize("data", [b"", b"{", b"Service unavailable", b"\xff\xfe", b"[" * 100_000])
def test_invalid_json_raises_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode_list(data)


def test_an_object_that_is_nested_too_deeply_raises_recursion_error() -> None:
    deep = b'{"items": [{"metadata": {"labels": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}, {}]}"
    with pytest.raises(RecursionError):
        decode_list(deep)


def test_the_error_of_a_watch_keeps_its_code() -> None:
    expired = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "message": "old"}
    assert decode_event(json.dumps({"type": "ERROR", "object": expired}).encode())["object"] == expired
