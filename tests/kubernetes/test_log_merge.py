"""The logs of several pods are merged by time; the lines of each pod keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.kubernetes.logs.merge import in_groups
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.rows import rows_of
from stepset.watch.lines import PART_LIMIT


def pod(index: int = 0, agent: bool = True) -> LogPod:
    name = f"node-{index}"
    return LogPod(name, name, "node", "node", index, 0, f"node {index}", agent, True, 0, True, False)


def stamp(at: int, zone: str = "Z") -> bytes:
    hour = 2 + (8 if zone != "Z" else 0)
    return f"2026-01-01T{hour:02}:00:{at // 10**9:02}.{at % 10**9:09}{zone} ".encode()


def log(*lines: tuple[int, bytes], zone: str = "Z") -> list[bytes]:
    return [stamp(at, zone) + text + b"\n" for at, text in lines]


def shown(
    *logs: list[bytes], agent: bool = True, sources: frozenset[str] | None = None, at_once: int = 100
) -> list[bytes]:
    async def merge() -> list[bytes]:
        rows = [rows_of(pod(index, agent), as_they_arrive(chunks), sources) for index, chunks in enumerate(logs)]
        return [row async for _, some in in_groups(rows, at_once) for row in some]

    return asyncio.run(merge())


async def as_they_arrive(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await asyncio.sleep(0)
        yield chunk


class TestOrder:
    def test_is_by_time(self) -> None:
        first = log((1, b"[rank 0] a"), (5, b"[rank 0] c"))
        second = log((2, b"[rank 1] b"), (9, b"[rank 1] d"))
        assert shown(first, second) == [b"[rank 0] a", b"[rank 1] b", b"[rank 0] c", b"[rank 1] d"]

    def test_of_lines_of_one_time_is_by_pod(self) -> None:
        logs = [log((7, b"[rank %d] %d" % (rank, n))) for rank in range(3) for n in [rank]]
        assert shown(*logs) == [b"[rank 0] 0", b"[rank 1] 1", b"[rank 2] 2"]

    def test_of_one_pods_lines_is_kept_although_times_decrease(self) -> None:
        assert shown(log((5, b"[rank 0] a"), (3, b"[rank 0] b"), (6, b"[rank 0] c")), log((4, b"[rank 1] x"))) == [
            b"[rank 1] x",
            b"[rank 0] a",
            b"[rank 0] b",
            b"[rank 0] c",
        ]

    def test_respects_different_time_zones_of_nodes(self) -> None:
        first = log((1, b"[rank 0] a"), (3, b"[rank 0] c"), zone="+08:00")
        assert shown(first, log((2, b"[rank 1] b"))) == [b"[rank 0] a", b"[rank 1] b", b"[rank 0] c"]


class TestLines:
    def test_of_an_agent_are_shown_without_events_and_progress(self) -> None:
        lines = [b'[stepset] {"event": "ready"}', b'[rank 0] {"stepset": {"step": 1}}', b"[rank 0] {x", b"[launcher] y"]
        assert shown(log(*enumerate(lines))) == [b"[rank 0] {x", b"[launcher] y"]

    def test_are_shown_without_states_of_incomplete_lines(self) -> None:
        assert shown(log((1, b"[rank 0~] 5 %"), (2, b"[rank 0] 100 %"), (3, b"[launcher~] x"))) == [b"[rank 0] 100 %"]

    def test_without_a_head_have_the_pod_as_source(self) -> None:
        assert shown([], log((1, b"Traceback"), (2, b"[Errno 2] x"))) == [
            b"[node 1] Traceback",
            b"[node 1] [Errno 2] x",
        ]

    def test_of_a_pod_without_agent_all_have_the_pod_as_source(self) -> None:
        lines = [b"[rank 7] x", b'{"stepset": {"step": 1}}', b"y"]
        assert shown(log(*enumerate(lines)), agent=False) == [b"[node 0] [rank 7] x", b"[node 0] y"]

    def test_in_parts_are_joined_at_the_place_of_their_last_part(self) -> None:
        first = log((1, b"[rank 0+] a"), (2, b"[rank 2] x"), (4, b"[rank 0] b"), (5, b"[rank 0] c"))
        assert shown(first, log((3, b"[rank 1] y"))) == [
            b"[rank 2] x",
            b"[rank 1] y",
            b"[rank 0] ab",
            b"[rank 0] c",
        ]

    def test_in_parts_without_the_last_part_are_shown_at_the_end(self) -> None:
        assert shown(log((1, b"[rank 0+] a"), (2, b"[rank 1] b"))) == [b"[rank 1] b", b"[rank 0] a"]

    def test_that_are_too_long_are_shown_as_several(self) -> None:
        block = b"x" * (PART_LIMIT // 4)
        rows = shown([stamp(1), *[block] * 9, b"\n", *log((2, b"z"))], agent=False)
        assert b"".join(row.removeprefix(b"[node 0] ") for row in rows) == block * 9 + b"z"
        assert max(map(len, rows)) < 2 * PART_LIMIT

    def test_of_other_sources_are_dropped(self) -> None:
        lines = log((1, b"[rank 1] a"), (2, b"[rank 11] b"), (3, b"c"), (4, b'[stepset] {"event": "ready"}'))
        assert shown(lines, sources=frozenset({"rank 1", "node 0"})) == [b"[rank 1] a", b"[node 0] c"]
        assert shown(lines, sources=frozenset()) == []


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=30), max_size=6),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.integers(2, 7),
)
def test_logs_are_merged_like_by_a_stable_sort(
    logs: list[list[tuple[int, bool]]], sizes: list[int], at_once: int
) -> None:
    rows = [
        [(at, b"[rank %d] %d %s" % (rank, n, b"{" * odd)) for n, (at, odd) in enumerate(sorted(each))]
        for rank, each in enumerate(logs)
    ]

    def chunks(data: bytes) -> Iterator[bytes]:
        at = turn = 0
        while at < len(data):
            yield data[at : at + sizes[turn % len(sizes)]]
            at, turn = at + sizes[turn % len(sizes)], turn + 1

    found = shown(*[list(chunks(b"".join(log(*each)))) for each in rows], at_once=at_once)
    times = {text: at for each in rows for at, text in each}
    assert sorted(found) == sorted(times)
    assert [times[row] for row in found] == sorted(times.values())
    for each in rows:
        own = {text for _, text in each}
        assert [row for row in found if row in own] == [text for _, text in each]
