"""Keeps a limited history of a run's progress reports. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from stepset.run_status import Progress, ProgressPoint
from stepset.watch.bounded_json import finite
from stepset.watch.lines import MAX_METRICS

LIMIT = 160
"""The maximum number of points. If a history becomes longer, every other point is dropped."""


def with_point(points: tuple[ProgressPoint, ...], progress: Progress, at: float) -> tuple[ProgressPoint, ...]:
    """Adds a progress report to a history, and returns the new history. `at` is in seconds since the epoch.

    If the last point of the history contains the same progress report, returns the history unchanged.
    """
    if points and points[-1].progress == progress:
        return points
    longer = (*points, ProgressPoint(at, progress))
    return longer if len(longer) <= LIMIT else (*longer[:-1:2], longer[-1])


def limited(points: Sequence[ProgressPoint]) -> tuple[ProgressPoint, ...]:
    """Returns the last LIMIT points of a recorded history, with the limits that apply to progress reports.

    Numbers that are not finite or too large are dropped, and so are the metrics after the first MAX_METRICS.
    """
    kept = [point for point in points[-LIMIT:] if finite(point.at) is not None]
    names = list(dict.fromkeys(name for point in kept for name in point.progress.metrics))[:MAX_METRICS]
    return tuple(ProgressPoint(point.at, _limited(point.progress, frozenset(names))) for point in kept)


def _limited(progress: Progress, names: frozenset[str]) -> Progress:
    metrics = {name: n for name, n in progress.metrics.items() if name in names and finite(n) is not None}
    step = None if finite(progress.step) is None else progress.step
    return Progress(step=step, progress=finite(progress.progress), metrics=metrics)
