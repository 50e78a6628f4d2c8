"""Whatever a watch sends, its collection can be listed and watched again, and no run is affected by another."""

from __future__ import annotations

import json
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from stepset.watch.cluster.ownership import UnreadableObjectError
from stepset.watch.cluster.router import Router
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import ListWatch
from stepset.watch.state.reports import Reports
from tests.fuzzing import FUZZED
from tests.watch.cluster.streams import NAMES, stream

PIECES = st.binary(max_size=6) | st.sampled_from(
    [b"\n", b"{", b'"', b"null", b'"type": "ERROR"', b'"code": 410', b"9" * 400, b"[" * 2000, b"\\ud800", b"1e999"]
)
LISTING = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}


@cache
def watched(name: str) -> bytes:
    """The recorded changes of a scenario, as the lines of a watch."""
    events = ({"type": change.verb, "object": change.object} for change in stream(name))
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


@FUZZED
@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 40), PIECES), min_size=1, max_size=4),
    st.integers(1000, 100_000),
)
@example("jobset_fails", [(0, 0, b"[" * 100_000 + b"\n")], 1000)
def test_any_bytes_of_a_watch_are_read(name: str, cuts: list[tuple[int, int, bytes]], size: int) -> None:
    """Each of `cuts` is where recorded bytes are replaced, how many, and by what."""
    data = watched(name)
    for at, length, piece in cuts:
        place = at % len(data)
        data = data[:place] + piece + data[place + length :]
    list_watch, router = ListWatch(), Router()
    list_watch.next_request()
    list_watch.listed(LISTING)
    for start in range(0, len(data), size):
        for change in list_watch.data(data[start : start + size]):
            try:
                router.see([change])
            except UnreadableObjectError:  # the informer ignores the object
                continue
        if not list_watch.listed_once:
            assert not list_watch.next_request().watch
            list_watch.listed(LISTING)
    assert list_watch.next_request().watch
    for run in router.runs:
        objects = router.objects(run)
        assert objects is not None
        json.dumps(status_of(objects, Reports(), 2e9).to_dict(), allow_nan=False)
