"""The document of an agent is read without an error, whatever a rank has written, and without unlimited memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.hang import StackFrame
from stepset.watch.stacks.document import MAX_BYTES, read_document
from tests.stacks import LOADS, REDUCE, document, loading, process, waiting

_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=20,
)
_KEYS = ("rank", "processes", "collectives", "why", "pid", "kind", "threads", "frames", "name", "sizes", "age", "seq")
_DOCUMENTS = st.dictionaries(
    st.just("ranks"),
    st.lists(
        st.dictionaries(
            st.sampled_from(_KEYS),
            st.one_of(_JSON, st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=5), max_size=3)),
        ),
        max_size=3,
    ),
    min_size=1,
)


def test_the_ranks_of_a_pod_are_read_with_the_process_of_the_rank_first() -> None:
    third, second = read_document(document(loading(3), waiting(2)))[::-1]
    assert (second.rank, third.rank) == (2, 3)
    assert [each.kind for each in third.processes] == ["rank", "worker"]
    assert third.processes[0].frames == tuple(StackFrame(*frame) for frame in LOADS)
    (collective,) = second.collectives
    assert (collective.seq, collective.name, collective.sizes) == (1185, "all_reduce", ((1048576,),))
    assert (collective.backend, collective.dtype, collective.age) == ("gloo", "float32", 310.1)


@given(_DOCUMENTS)
def test_any_document_is_read(data: Any) -> None:
    for rank in read_document(json.dumps(data).encode()):
        assert isinstance(rank.rank, int)
        assert rank.processes or rank.why


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"ranks": {}}', b"\xff", b"[" * 200, b"x" * (MAX_BYTES + 1)])
def test_what_is_no_document_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # the messages are those of the JSON parser
        read_document(data)


@pytest.mark.parametrize(
    "rank",
    [
        {"rank": 2**70},
        {"rank": True},
        {"rank": "1"},
        {"rank": -1},
        {},
    ],
)
def test_an_impossible_rank_is_left_out(rank: dict[str, Any]) -> None:
    assert read_document(document({**waiting(0), **rank} if rank else {})) == ()


def test_a_rank_that_occurs_twice_has_the_first_entry() -> None:
    (only,) = read_document(document(waiting(1), {"rank": 1, "why": "forged"}))
    assert (only.why, len(only.processes)) == ("", 1)


def test_values_of_a_wrong_type_are_empty() -> None:
    broken = {"pid": "x", "kind": 3, "state": None, "threads": [1, {"frames": [["f"], ["f", "a", "x"], 3]}]}
    (rank,) = read_document(document({"rank": 0, "processes": [broken, 1], "collectives": [{"age": float("nan")}]}))
    (made,) = rank.processes
    assert (made.pid, made.kind, made.state) == (0, "child", "")
    assert made.frames == (StackFrame("f", "a", 0),)
    assert rank.collectives[0].age == 0


def test_numbers_and_lengths_are_limited() -> None:
    frames = [["f" * 3000, "/" + "p" * 3000, 1]] * 100
    thread = {"name": "t" * 5000, "frames": frames}
    large = {**process([]), "threads": [thread] * 5, "wchan": "w" * 5000}
    many = {**REDUCE, "sizes": [[1] * 8] * 16}
    (rank,) = read_document(document({"rank": 0, "processes": [large], "collectives": [many] * 500}))
    (made,) = rank.processes
    assert (len(made.threads), len(made.frames), len(rank.collectives)) == (5, 64, 64)
    assert (len(made.frames[0].function), len(made.frames[0].file), len(made.wchan)) == (200, 1000, 200)
    assert (len(rank.collectives[0].sizes), len(rank.collectives[0].sizes[0])) == (16, 8)


@pytest.mark.parametrize("sizes", [[[1] * 9], [[1]] * 17, [[1], [-1]], [[1], 1], [[2**53]], "8"])
def test_the_size_of_a_collective_is_unknown_if_one_of_its_tensors_is_invalid(sizes: Any) -> None:
    (rank,) = read_document(document({"rank": 0, "collectives": [{**REDUCE, "sizes": sizes}]}))
    assert (rank.collectives[0].sizes, rank.collectives[0].call.elements) == ((), None)


def test_a_document_has_a_maximum_number_of_frames() -> None:
    short = [["f", "a", 1]] * 64
    large = {**process([]), "threads": [{"name": "", "frames": short}] * 100}
    ranks = read_document(document(*({"rank": rank, "processes": [large] * 2} for rank in range(10))))
    threads = [thread for rank in ranks for made in rank.processes for thread in made.threads]
    assert sum(len(thread.frames) for thread in threads) == 100_000


def test_a_document_without_ranks_states_why() -> None:
    with pytest.raises(ValueError, match="no rank is running"):
        read_document(b'{"version": 1, "ranks": [], "why": "no rank is running"}')


def test_a_rank_without_a_process_states_why() -> None:
    rank, other = read_document(document({"rank": 0, "processes": [], "why": "rank 0 has exited"}, {"rank": 1}))
    assert (rank.why, other.why) == ("rank 0 has exited", "its agent found no process")
