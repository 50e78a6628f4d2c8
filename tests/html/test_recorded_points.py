"""The record of a local run's progress reports, which another process may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.local.runs.run_dir import RunDir
from stepset.html.charts import metric_charts
from stepset.run_status import Phase, ProgressPoint, RunStatus
from stepset.watch.points import LIMIT
from stepset.watch.reported import MAX_METRICS

LARGE = 10**400


def status_of(path: Path, points: list[dict[str, Any]]) -> RunStatus:
    """Returns the status of a run with recorded points."""
    (path / "points.json").write_text(json.dumps(points))
    return RunDir(path).with_details(RunStatus("run", "run", "local", phase=Phase.SUCCEEDED))


def points_of(path: Path, *reports: dict[str, Any], at: float = 1.0) -> tuple[ProgressPoint, ...]:
    return status_of(path, [{"at": at, "progress": report} for report in reports]).points


@pytest.mark.parametrize("number", [LARGE, -LARGE, 2**63], ids=["large", "small", "2**63"])
def test_a_step_that_is_too_large_is_dropped_and_the_curves_are_drawn(number: int, tmp_path: Path) -> None:
    reports = [{"step": number, "metrics": {"loss": loss}} for loss in (2.0, 1.0)]
    status = status_of(tmp_path, [{"at": at, "progress": report} for at, report in enumerate(reports)])
    assert [point.progress.step for point in status.points] == [None, None]
    (chart,) = metric_charts(status.points)
    assert (chart.metric, chart.over) == ("loss", "seconds")


def test_numbers_that_are_not_finite_are_dropped(tmp_path: Path) -> None:
    (point,) = points_of(tmp_path, {"progress": float("nan"), "metrics": {"loss": float("inf"), "accuracy": 0.5}})
    assert (point.progress.progress, point.progress.metrics) == (None, {"accuracy": 0.5})
    assert points_of(tmp_path, {"step": 1}, at=float("inf")) == ()


def test_the_last_points_and_the_first_metrics_are_kept(tmp_path: Path) -> None:
    metrics = {f"metric {n}": 0.5 for n in range(MAX_METRICS + 1)}
    points = points_of(tmp_path, *({"step": step, "metrics": metrics} for step in range(LIMIT + 1)))
    assert [point.progress.step for point in points] == list(range(1, LIMIT + 1))
    assert list(points[0].progress.metrics) == list(metrics)[:MAX_METRICS]
