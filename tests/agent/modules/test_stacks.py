"""Whatever a rank writes to the files of the hook is read without an error, and within limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.agent.hangs.answers import threads_in
from stepset.agent.hangs.joins import last_joins
from stepset.agent.hangs.recorder import MOST_GROUPS, digest
from stepset.agent.hangs.samples import fitted_rank

TEXT = """Thread 0x00007f5ecaca3b80 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Thread 0x00007f5ec0000001 [loader] (most recent call first):
  <no Python frame>

Thread 0x00007f5ec0000002 (most recent call first):
  File "/run/hook/collectives.py", line 86 in _answer

Current thread 0x00007f5ecffffff0 (most recent call first):
  File "/app/a "quoted", line 5 in name.py", line 17 in Tokens.__getitem__
  File "<string>", line ??? in <module>
"""


def test_the_main_thread_is_first_and_the_thread_of_the_hook_is_omitted() -> None:
    assert threads_in(TEXT, "7f5ecffffff0", "/run/hook") == [
        {
            "name": "main",
            "frames": [["Tokens.__getitem__", '/app/a "quoted", line 5 in name.py', 17], ["<module>", "<string>", 0]],
        },
        {
            "name": "",
            "frames": [
                ["wait", "/usr/lib/python3.11/threading.py", 320],
                ["_bootstrap", "/usr/lib/python3.11/threading.py", 995],
            ],
        },
        {"name": "loader", "frames": []},
    ]


def test_threads_and_frames_are_limited() -> None:
    file, function = "f" * 900, "g" * 400
    frame = f'  File "{file}", line 1 in {function}\n'
    threads = threads_in(
        "".join(f"Thread 0x{n:x} (most recent call first):\n{frame * 200}" for n in range(300)), "7", ""
    )
    assert len(threads) <= 101
    assert max(len(thread["frames"]) for thread in threads) == 64
    assert {(len(f[0]), len(f[1])) for thread in threads for f in thread["frames"]} == {(300, 300)}


@given(st.text() | st.lists(st.sampled_from([*TEXT.split("\n"), "  ", "Thread 0x", "\0"])).map("\n".join))
def test_any_text_can_be_read(text: str) -> None:
    for thread in threads_in(text, "7f5ecffffff0", "/run/hook"):
        assert set(thread) == {"name", "frames"}
        assert all(isinstance(number, int) for _, _, number in thread["frames"])


def entry(**changes: Any) -> dict[str, Any]:
    """Returns an entry of a dump as torch 2.15 writes it."""
    return {
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "input_dtypes": ["Float"],
        "input_sizes": [[4, 2]],
        "retired": False,
        "state": "scheduled",
        "time_created_ns": 1_000_000_000,
        **changes,
    }


def dump(*entries: Any, **more: Any) -> bytes:
    return json.dumps({"entries": entries, **more}).encode()


def test_a_rank_waits_for_the_first_collective_that_is_not_finished() -> None:
    entries = [entry(retired=True), *(entry(collective_seq_id=n, input_sizes=[[n]]) for n in (3, 2, 4))]
    (found,) = digest([dump(*entries, pg_config={"0": {"ranks": "[0, 3]"}})])
    assert found.pop("age") > 1e9 / 2
    assert found == {
        "group": "0", "desc": "default_pg", "backend": "gloo", "seq": 2, "name": "all_reduce", "sizes": [[2]],
        "dtype": "float32", "state": "scheduled", "done": 1, "last": "all_reduce", "queued": 4, "p2p": False,
        "ranks": [0, 3],
    }  # fmt: skip


def test_groups_and_point_to_point_calls_are_counted_separately_and_waiting_groups_are_first() -> None:
    entries = [
        entry(state="completed"),
        entry(process_group=["1", "second"], collective_seq_id=7),
        entry(is_p2p=True, p2p_seq_id=3, profiling_name="nccl:send 0->1"),
    ]
    found = digest([dump(*entries)])
    assert sorted((each["group"], each["p2p"], each["seq"], each["done"]) for each in found) == [
        ("0", False, 0, 1),
        ("0", True, 3, 0),
        ("1", False, 7, 0),
    ]
    assert not found[-1]["seq"]


@pytest.mark.parametrize("value", [None, -1, 2**70, "1", [], {}, True, 1e400])
@pytest.mark.parametrize("key", list(entry()))
def test_an_entry_with_a_wrong_value_does_not_hide_others(key: str, value: Any) -> None:
    found = digest([b"[" * 10**6, b"\xff", dump(7, "x", entry(**{key: value}), entry(process_group=["2", "good"]))])
    assert "good" in [each["desc"] for each in found]


def test_the_joins_of_a_group_are_the_differences_of_its_last_numbers_and_times() -> None:
    noticed = {"time_discovered_completed_ns": 500_000_000_000}
    entries = [
        entry(collective_seq_id=n, time_created_ns=n * 2_000_000, **(noticed if n == 30 else {}))
        for n in range(30, 0, -1)
    ]
    (found,) = last_joins([dump(*entries, entry(collective_seq_id=31, profiling_name="gloo:broadcast"))])
    assert found == {
        "group": "0", "backend": "gloo", "seq": [1] * 30, "at": [2000] * 30, "end": [*[0] * 29, 499_940_000],
    }  # fmt: skip


def test_few_collectives_and_sends_have_no_joins_and_many_are_limited() -> None:
    assert last_joins([dump(*(entry(collective_seq_id=n) for n in range(19)))]) == []
    assert last_joins([dump(*(entry(collective_seq_id=n, is_p2p=True) for n in range(50)))]) == []
    groups = [entry(collective_seq_id=n, process_group=[g, "x"]) for g in "012" for n in range(2000)]
    found = last_joins([dump(*groups)])
    assert [len(each["at"]) for each in found] == [120, 120]
    assert len(json.dumps(found)) < 4096


@pytest.mark.parametrize("value", [None, -1, 2**70, "1", [], {}, True, 1e400])
@pytest.mark.parametrize("key", list(entry()))
def test_an_entry_with_a_wrong_value_does_not_hide_the_joins_of_others(key: str, value: Any) -> None:
    entries = [entry(collective_seq_id=n) for n in range(30)]
    (found,) = last_joins([b"[" * 10**6, dump(7, "x", entry(**{"collective_seq_id": 40, key: value}), *entries)])
    assert len(found["seq"]) in (30, 31)


def test_the_number_of_groups_is_limited() -> None:
    assert len(digest([dump(*(entry(process_group=[str(n), "x"]) for n in range(5000)))])) == MOST_GROUPS


def process(pid: int, threads: int, frames: int) -> dict[str, Any]:
    stack = [["f" * 300, "g" * 300, 1]] * frames
    return {"pid": pid, "kind": "rank", "threads": [{"name": "", "frames": stack} for _ in range(threads)]}


@given(st.integers(0, 64), st.integers(0, 40), st.integers(0, 64), st.integers(0, 16))
def test_an_event_fits(count: int, threads: int, frames: int, groups: int) -> None:
    found = {
        "processes": [process(pid, threads, frames) for pid in range(count)],
        "collectives": [{"seq": 1, "ranks": list(range(1024))}] * groups,
    }
    fitted = fitted_rank(found)
    assert len(fitted["collectives"]) == groups
    assert len(json.dumps(fitted)) <= 16 << 10
    assert fitted["processes"][:1] == [] or fitted["processes"][0]["pid"] == 0
    assert bool(fitted["processes"]) == bool(count)


def test_a_thread_that_is_reported_twice_appears_once() -> None:
    text = 'Thread 0x1 (most recent call first):\n  File "/app/train.py", line 5 in load\n'
    (thread,) = threads_in(text * 2, "1", "/run/hook")
    assert thread["frames"] == [["load", "/app/train.py", 5]]
