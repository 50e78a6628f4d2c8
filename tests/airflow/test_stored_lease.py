"""The position in a task's log that another triggerer has stored, or any other task of the DAG has overwritten."""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from stepset.hang import Hang, HangGroup, HangKind
from stepset.run_status import Phase, Progress, RunStatus
from stepset.watch.log_cursor import LogCursor
from stepset_airflow.logs.task_log import TaskLog
from stepset_airflow.triggerer import log_lease
from stepset_airflow.triggerer.log_lease import delete_lease, lease_log
from stepset_airflow.triggerer.stored_lease import read_lease
from tests.fuzzing import FUZZED

pytestmark = pytest.mark.airflow

RUN = RunStatus("run", "run", "kubernetes", phase=Phase.RUNNING, progress=Progress(2, 0.5, {"loss": 1.0}))
# More ranks than a text of the lease could name one by one.
HANG = Hang(HangKind.MISSING, 1.0, 300.0, 9.0, groups=(HangGroup(tuple(range(0, 4000, 2)), "sleeping", guilty=True),))


def cursor() -> dict[str, Any]:
    found = LogCursor()
    found.feed(b"2026-01-01T12:00:00.123456789Z a line\n2026-01-01T12:00:01.123456789+02:00 another\n")
    return found.to_dict()


def position(status: RunStatus = RUN) -> dict[str, Any]:
    """A position as a trigger stores it."""
    log = TaskLog(structlog.get_logger())
    log.on_status(status)
    return {"reported": log.reported, "printed": {"uid": cursor()}, "at": "2026-01-01T12:00:00.5+00:00"}


def lease(**changes: Any) -> dict[str, Any]:
    return {"trigger": 7, "by": "me", "position": position(), **changes}


def test_a_lease_that_a_trigger_stored_is_read() -> None:
    assert read_lease(lease(), 7) == lease()
    assert read_lease(lease(position={}), 7)["position"] == {}
    hanging = lease(position=position(RUN.with_(hang=HANG)))
    assert hanging["position"]["reported"]["hang"] and read_lease(hanging, 7) == hanging


@pytest.mark.parametrize("value", [None, lease(trigger=8), {}])
def test_a_lease_of_another_deferral_is_none(value: Any) -> None:
    assert read_lease(value, 7) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
STAMPS = st.from_regex(r"\A[0-9]{4}-[0-1]\d-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-5]\d\.[0-9]{9}(Z|[+-][0-2]\d:[0-5]\d)\Z")
PATHS = [("trigger",), ("by",), ("position",), ("position", "at"), ("position", "printed"), ("position", "reported")]
PATHS += [("position", "reported", name) for name in position()["reported"]]
PATHS += [("position", "printed", "uid", name) for name in cursor()]


@FUZZED
@given(st.sampled_from(PATHS), JSON | STAMPS)
@example(("position", "printed", "uid", "last"), "0001-01-01T00:00:00.000000000Z")
@example(("position", "printed", "uid", "latest"), "2026-99-01T00:00:00.000000000Z")
@example(("position", "at"), "2026-01-01T00:00:00")
def test_any_value_of_a_field_is_usable_or_makes_the_lease_invalid(path: tuple[str, ...], value: Any) -> None:
    changed = lease()
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    for stored in (changed, value):
        try:
            read = read_lease(stored, 7).get("position", {})
        except ValueError:
            continue
        log = TaskLog(structlog.get_logger(), reported=read.get("reported"))
        log.on_status(RUN.with_(progress=Progress(3, None, {"loss": 0.5})))
        assert log.reported["phase"]
        for each in read.get("printed", {}).values():
            resumed = LogCursor.from_dict(each)
            assert resumed.since is None or resumed.since.endswith("Z")
            resumed.feed(b"2026-01-01T12:00:05.123456789Z next\n")
        assert not read.get("at") or datetime.fromisoformat(read["at"]).tzinfo is not None


class Supervisor:
    """Airflow's supervisor with one XCom."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def asend(self, message: Any) -> Any:
        kind = type(message).__name__
        if kind == "GetXCom":
            return SimpleNamespace(value=self.value)
        self.value = message.value if kind == "SetXCom" else None
        return None


@pytest.mark.parametrize(
    "stored",
    [
        "text",
        [7],
        {"trigger": 7},
        lease(position=[]),
        lease(position={"at": "tomorrow"}),
        lease(position={"printed": {"uid": {"last": 1}}}),
        lease(position={"reported": {"notes": 3}}),
    ],
    ids=str,
)
def test_a_trigger_continues_from_its_deferral_if_the_stored_lease_is_invalid(
    monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    from airflow.sdk.execution_time import task_runner

    supervisor = Supervisor(stored)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    monkeypatch.setattr(log_lease, "_STALL", 0.0)  # the lease is checked before each line
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, id="id", try_number=1)
    trigger: Any = SimpleNamespace(trigger_id=7, task_instance=ti)

    async def take_over() -> Any:
        async with lease_log(trigger, position()) as taken:
            with anyio.fail_after(30):
                await taken.block_if_taken_over()
                renewal = asyncio.create_task(taken.renew(position))
                taken.mark_written()
                while supervisor.value is stored:
                    await asyncio.sleep(0.05)
                renewal.cancel()
                supervisor.value = stored  # another task of the DAG overwrites it
                await taken.block_if_taken_over()
                await delete_lease(trigger)
            return taken.before

    with capture_logs() as entries:
        assert asyncio.run(take_over()) == position()
    warnings = [each["event"] for each in entries if each["log_level"] == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith("the log position of an earlier triggerer cannot be read: it is not a position")
    assert supervisor.value is None
