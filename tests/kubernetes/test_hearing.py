"""What waits to be taken in, and what is kept of it, however much a run says. Nothing is asked: there is no server."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from stepset.backends.kubernetes.hearing import Hearing
from stepset.backends.kubernetes.inbox import AsyncInbox, Inbox
from stepset.watch.lines import Splitter
from stepset.watch.plain_lines import PlainSplitter
from tests.kubernetes.nowhere import RUN, nowhere
from tests.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def hearing(tmp_path: Path) -> Hearing:
    return Hearing(nowhere(tmp_path), RUN)


def test_of_long_lines_few_wait_to_be_taken(hearing: Hearing) -> None:
    part, handed = b"x" * 2 * MIB + b"\n", []

    def read() -> None:
        splitter = PlainSplitter("node 0")
        for number in range(64):
            hearing._printed("a-pod", splitter.feed(part))
            handed.append(number)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert not until(lambda: not reader.is_alive(), 2)
    assert 0 < len(handed) * len(part) <= 16 * MIB
    taken = 0
    while taken < 64:
        taken += sum(1 for _ in hearing.take(1.0))
    assert until(lambda: not reader.is_alive())


def test_a_line_too_heavy_for_all_of_the_room_is_let_in_alone() -> None:
    inbox: Inbox[int] = Inbox(10, lambda weight: weight)
    inbox.put(50)
    assert inbox.full()
    assert inbox.get() == 50
    inbox.put(9)
    inbox.put(9)
    assert inbox.full()
    assert (inbox.get(), inbox.get(), inbox.empty()) == (9, 9, True)


def test_in_an_event_loop_too_little_waits_and_whoever_waits_for_room_gets_it() -> None:
    async def handed_on() -> list[int]:
        inbox: AsyncInbox[int] = AsyncInbox(10, lambda weight: weight)
        weights = [50, 1, 2, 9, 40, 3, 3, 3, 3]
        putting = [asyncio.create_task(inbox.put(weight)) for weight in weights]
        await asyncio.sleep(0)
        assert [task.done() for task in putting].count(True) == 1
        taken = []
        for _ in weights:
            taken.append(await asyncio.wait_for(inbox.get(), 10))
            await asyncio.sleep(0)
            assert inbox.qsize() < 10 + max(weights)
            inbox.task_done()
        await asyncio.wait_for(inbox.join(), 10)
        assert inbox.empty()
        assert all(task.done() for task in putting)
        assert sorted(taken) == sorted(weights)
        return taken

    assert asyncio.run(handed_on())[0] == 50


def test_many_short_lines_weigh_more_than_their_bytes() -> None:
    for splitter in (Splitter("node 0"), PlainSplitter("node 0")):
        assert splitter.feed(b"\n" * 1000).weight > 100_000
