"""The curves of a run: every call that returns a run's status returns the progress reports of the training code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.watch.points import LIMIT

pytestmark = pytest.mark.local


def _reports() -> Callable[[int], None]:
    def train(steps: int) -> None:
        import json
        import time

        for step in range(steps):
            print(json.dumps({"stepset": {"step": step, "metrics": {"loss": 1 / (step + 1)}}}), flush=True)
            if steps < 10:
                time.sleep(0.3)

    return train


def _submitted(function: Callable[[int], None], **fields: Any) -> stepset.RunStatus:
    return stepset.submit(function, **fields).wait()


def _read_again(function: Callable[[int], None], **fields: Any) -> stepset.RunStatus:
    return stepset.status(_submitted(function, **fields).name)


def _in_an_event_loop(function: Callable[[int], None], **fields: Any) -> stepset.RunStatus:
    return asyncio.run(stepset.aio.run(function, **fields))


def _cancelled_after_its_end(function: Callable[[int], None], **fields: Any) -> stepset.RunStatus:
    return stepset.cancel(_submitted(function, **fields))


@pytest.mark.parametrize("call", [stepset.run, _in_an_event_loop, _submitted, _read_again, _cancelled_after_its_end])
def test_the_status_has_a_point_for_each_report(call: Callable[..., stepset.RunStatus], home: Path) -> None:
    status = call(_reports(), framework="plain", args=[4])
    assert [point.progress.step for point in status.points] == [0, 1, 2, 3]
    assert status.points[0].at < status.points[-1].at
    assert '<polyline class="curve"' in status._repr_html_()


def test_many_reports_make_a_limited_number_of_points(home: Path) -> None:
    points = stepset.run(_reports(), framework="plain", args=[5000]).points
    assert len(points) <= LIMIT
    assert (points[0].progress.step, points[-1].progress.step) == (0, 4999)


def test_the_points_of_a_run_without_reports_are_empty(home: Path) -> None:
    status = _read_again(_reports(), framework="plain", args=[0])
    assert status.points == ()
