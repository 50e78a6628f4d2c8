"""Work that must finish continues although Airflow cancels its waiter, which it does once a second."""

from __future__ import annotations

import asyncio

import pytest

from stepset_airflow.triggerer.cancellation import spawn, wait_uncancelled

pytestmark = pytest.mark.airflow


def test_work_finishes_however_often_its_waiter_is_cancelled() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.3)
        done.append(True)

    async def cancelled_repeatedly() -> None:
        waiting = asyncio.create_task(wait_uncancelled(spawn(work()), 60))
        for _ in range(5):
            await asyncio.sleep(0.01)
            waiting.cancel("user-action")
        await waiting

    asyncio.run(cancelled_repeatedly())
    assert done


def test_the_waiter_raises_the_exception_of_the_work() -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def waits() -> None:
        await wait_uncancelled(spawn(fails()), 60)

    with pytest.raises(ValueError, match="no"):
        asyncio.run(waits())


def test_work_continues_in_the_background_after_the_timeout() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.1)
        done.set()

    async def both() -> None:
        await wait_uncancelled(spawn(work()), 0.01)
        assert not done.is_set()
        await asyncio.wait_for(done.wait(), 60)

    asyncio.run(both())
