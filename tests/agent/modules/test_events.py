"""Events are written and read by the same module."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stepset.agent.config import Config
from stepset.agent.events import RankEvents, fitted, long_event, short_event
from stepset.agent.lines import PartJoiner

Events = Callable[..., RankEvents]


@pytest.fixture
def failures() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def events(config: Callable[..., Config], failures: list[dict[str, Any]]) -> Events:
    """Creates the record of a pod whose launcher starts ranks."""

    def make(on_start: Callable[[int], None] = lambda rank: None, **more: Any) -> RankEvents:
        return RankEvents(config(launcher=["torchrun"], **more), failures, failures.append, on_start)

    return make


def fed(record: RankEvents, lines: bytes) -> bytes:
    """Passes lines of `rank` processes to the record. Returns the lines to print."""
    return PartJoiner(record.see).feed(lines)


def started(rank: int, local: int, wrapper: int = 1) -> bytes:
    return short_event("started", rank=rank, local_rank=local, pid=2, wrapper=wrapper)


def failed(rank: int, at: float, **more: Any) -> bytes:
    return long_event("failed", {"rank": rank, "error": "e", "at": at, **more})


def test_both_event_formats_are_json() -> None:
    assert short_event("exited", rank=1, at=2.5) == b'[stepset] {"event": "exited", "rank": 1, "at": 2.5}\n'
    assert long_event("exited", {"rank": 1, "at": 2.5}) == short_event("exited", rank=1, at=2.5)


def test_a_long_failure_loses_its_earliest_lines_first() -> None:
    failure = {"error": "e" * 50, "tail": ["a" * 50, "b" * 50]}
    assert json.loads(fitted(failure, 150)) == {"error": "e" * 50, "tail": ["b" * 50]}
    assert json.loads(fitted(failure, 60)) == {"error": "e" * 25, "tail": []}


def test_running_and_seen_ranks_are_recorded(events: Events) -> None:
    starts: list[int] = []
    record = events(starts.append)
    printed = started(0, 0, wrapper=7) + started(3, 1, wrapper=8) + short_event("exited", rank=0, exit_code=0)
    assert fed(record, printed) == printed
    assert (record.running, record.seen, starts) == ({3: 8}, {0, 3}, [0, 3])


def test_a_failure_that_two_agents_report_counts_once(events: Events, failures: list[dict[str, Any]]) -> None:
    record = events()
    assert fed(record, failed(1, 5.0)) != b""
    assert fed(record, failed(1, 5.0, reported=True)) == b""
    assert failures == [{"rank": 1, "error": "e", "at": 5.0}]


@pytest.mark.parametrize(("restarts", "left"), [(True, 0), (False, 1)])
def test_failures_are_cleared_when_the_launcher_restarts_a_rank(
    events: Events, failures: list[dict[str, Any]], restarts: bool, left: int
) -> None:
    record = events(launcher_restarts=restarts)
    fed(record, started(0, 0) + started(1, 1) + failed(1, 5.0) + started(1, 0))
    assert len(failures) == left


def test_a_result_is_kept_and_not_printed(events: Events) -> None:
    record = events()
    assert fed(record, long_event("result", {"size": 3, "text": "1.5"}, b"[stepset 0]")) == b""
    assert record.result == (3, b"1.5")


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"event": "started"}', '{"event": "later", "x": 1}'])
def test_lines_that_no_agent_wrote_are_printed_unchanged(events: Events, text: str) -> None:
    line = f"[stepset] {text}\n".encode()
    assert fed(events(), line) == line
