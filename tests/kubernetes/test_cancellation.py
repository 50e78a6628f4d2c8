"""What the code relies on of anyio: a native cancellation that comes as a wait ends is not lost.

`asyncio.wait_for` before Python 3.12 loses it (https://github.com/python/cpython/issues/86296).
"""

from __future__ import annotations

import asyncio

import anyio
import pytest


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_not_lost_that_comes_as_what_is_awaited_is_done(turns: int) -> None:
    """However many turns of the event loop lie between the two."""

    async def waits(news: asyncio.Event) -> bool:
        with anyio.move_on_after(60) as scope:
            await news.wait()
        return not scope.cancelled_caught

    async def cancelled() -> None:
        news = asyncio.Event()
        waiting = asyncio.create_task(waits(news))
        await asyncio.sleep(0.01)
        news.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel("user-action"):
            with pytest.raises(asyncio.CancelledError) as raised:
                await waiting
            assert raised.value.args == ("user-action",), "Airflow's word for who cancels"
        else:
            assert waiting.result() is True, "it was done before"

    asyncio.run(cancelled())


def test_what_is_not_done_in_time_has_ended() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.01)
            ended.append(True)

    async def waits() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await slow()
        return scope.cancelled_caught

    assert asyncio.run(waits()) is True
    assert ended


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_what_is_there_already_is_not_waited_for(seconds: float) -> None:
    async def waits() -> bool:
        news = asyncio.Event()
        news.set()
        with anyio.move_on_after(seconds) as scope:
            await news.wait()
        return not scope.cancelled_caught

    assert asyncio.run(waits()) is True


def test_what_it_raises_is_raised() -> None:
    async def fails() -> None:
        with anyio.move_on_after(60):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(fails())
