"""Who waits for something for a while can be cancelled at any moment, and what was waited for ends with the waiting."""

from __future__ import annotations

import asyncio

import pytest

from stepset_airflow.within import within

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_not_lost_that_comes_as_what_is_waited_for_is_done(turns: int) -> None:
    """However many turns of the event loop lie between the two; asyncio.wait_for lost it within the first three."""

    async def cancelled() -> None:
        news = asyncio.Event()
        waiting = asyncio.create_task(within(60, news.wait()))
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
            await asyncio.sleep(0.01)
            ended.append(True)

    assert asyncio.run(within(0.01, slow())) is False
    assert ended


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_what_is_there_already_is_not_waited_for(seconds: float) -> None:
    async def waits() -> bool:
        news = asyncio.Event()
        news.set()
        return await within(seconds, news.wait())

    assert asyncio.run(waits()) is True


def test_what_it_raises_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(within(60, fails()))
