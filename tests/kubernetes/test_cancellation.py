"""The code relies on anyio's timeouts: a native cancellation at the moment at which a wait ends is not lost.

`asyncio.wait_for` before Python 3.12 loses it (https://github.com/python/cpython/issues/86296).
"""

from __future__ import annotations

import asyncio

import anyio
import pytest


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_shortly_after_the_awaited_event_is_not_lost(turns: int) -> None:
    async def waits(event: asyncio.Event) -> bool:
        with anyio.move_on_after(60) as scope:
            await event.wait()
        return not scope.cancelled_caught

    async def cancelled() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(waits(event))
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel("user-action"):
            with pytest.raises(asyncio.CancelledError) as raised:
                await waiting
            assert raised.value.args == ("user-action",), "Airflow's message for a cancellation by a user"
        else:
            assert waiting.result() is True, "the wait ended before the cancellation"

    asyncio.run(cancelled())


def test_a_coroutine_that_times_out_has_ended() -> None:
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
def test_an_event_that_is_set_already_needs_no_wait(seconds: float) -> None:
    async def waits() -> bool:
        event = asyncio.Event()
        event.set()
        with anyio.move_on_after(seconds) as scope:
            await event.wait()
        return not scope.cancelled_caught

    assert asyncio.run(waits()) is True


def test_an_exception_in_the_scope_is_raised() -> None:
    async def fails() -> None:
        with anyio.move_on_after(60):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(fails())
