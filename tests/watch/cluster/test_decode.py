"""Objects that are decoded without most of their fields tell the same of a run as whole ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.watch.cluster.change import Change
from stepset.watch.cluster.decode import decode_event, decode_list
from tests.watch.cluster.streams import NAMES, stream
from tests.watch.cluster.test_lean import SECRET, dressed, states

pytest.importorskip("msgspec")


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", NAMES)
def test_every_state_is_the_same_from_watch_events(name: str) -> None:
    full = [dressed(change) for change in stream(name)]
    lines = [encoded({"type": change.verb, "object": change.object}) for change in full]
    cut = [Change(change.verb, decode_event(line)["object"], change.witnessed) for change, line in zip(full, lines)]
    assert states(cut) == states(full)


@pytest.mark.parametrize("name", NAMES)
def test_every_state_is_the_same_from_a_list(name: str) -> None:
    full = [dressed(change) for change in stream(name)]
    body = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [change.object for change in full]}
    items = decode_list(encoded(body))["items"]
    cut = [Change(change.verb, item, change.witnessed) for change, item in zip(full, items, strict=True)]
    assert states(cut) == states(full)


def test_what_no_state_is_read_from_is_not_kept() -> None:
    pod = {
        "metadata": {"name": "p", "managedFields": [{"manager": "kubectl"}]},
        "spec": {
            "nodeName": "n",
            "volumes": [{}],
            "containers": [{"name": "node", "env": [{"name": "A", "value": SECRET}]}],
        },
    }
    found = decode_event(encoded({"type": "ADDED", "object": pod}))["object"]
    assert found == {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "node"}]}}


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": []},
        {"metadata": {"name": 3}, "spec": "none"},
        {"metadata": {}, "spec": {"containers": {"a": 1}}},
        {"metadata": {}, "spec": {"replicatedJobs": [7]}},
        {"metadata": {}, "spec": None, "status": None},
    ],
)
def test_an_object_of_an_unknown_shape_is_decoded_whole(odd: dict[str, Any]) -> None:
    assert decode_event(encoded({"type": "ADDED", "object": odd}))["object"] == odd
    assert decode_list(encoded({"items": [odd, odd]}))["items"] == [odd, odd]


def test_a_list_keeps_its_version_and_where_it_goes_on() -> None:
    about = {"resourceVersion": "7", "continue": "abc"}
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": []}
    assert decode_list(encoded(body)) == body


@pytest.mark.parametrize("data", [b"", b"{", b"Service unavailable", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_an_error(data: bytes) -> None:
    for decode in (decode_list, decode_event):
        with pytest.raises((ValueError, RecursionError)):
            decode(data)


def test_the_error_of_a_watch_keeps_its_code() -> None:
    gone = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "message": "old"}
    assert decode_event(encoded({"type": "ERROR", "object": gone}))["object"] == gone
