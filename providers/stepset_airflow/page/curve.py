"""Collects the metrics of a run for the charts of its page. The number of points is limited."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.run_status import Progress

POINTS = 160
"""Maximum number of points of a curve. If a curve has more points, every second point is removed."""
METRICS = 6
"""Maximum number of metrics. The curve contains the metrics that the run reported first."""

_NAME = 40
Point = list[float | None]
_STEP, _PERCENT = "step", "percent"


class Curve:
    """The metrics of a run as a function of the training step.

    If the run reports no steps, the metrics are a function of the progress in percent.

    `stored` is an earlier result of `to_dict` for the same run. New points are added to the stored points.
    """

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        stored = stored or {}
        self._x = str(stored.get("x", _STEP))
        self._names: list[str] = [str(name) for name in stored.get("names", ())]
        self._kept: list[Point] = [list(point) for point in stored.get("points", ())]
        self._newest: Point | None = None
        self._stride = int(stored.get("stride", 1))
        self._count = 0
        self._stored_to = self._kept[-1][0] if self._kept else None

    def add(self, progress: Progress) -> bool:
        """Adds a progress report of the run. Returns whether the report added a point to the curve.

        If the run has restarted from a checkpoint, the method removes the points after the checkpoint. If a log is read
        from the beginning again, its reports repeat stored points. The method ignores such reports.
        """
        x, at = _position(progress)
        values = {name[:_NAME]: _finite(value) for name, value in progress.metrics.items()}
        if at is None or not (values or self._names):
            return False
        if x != self._x:
            self._x, self._kept, self._newest, self._stride, self._stored_to = x, [], None, 1, None
        if self._stored_to is not None:
            if at <= self._stored_to:
                return False
            self._stored_to = None
        self._drop_from(at)
        self._names += [name for name in values if name not in self._names][: METRICS - len(self._names)]
        point = [at, *(values.get(name) for name in self._names)]
        if self._count % self._stride:
            self._newest = point
        else:
            self._kept.append(point)
            self._newest = None
        self._count += 1
        if len(self._kept) > POINTS:
            self._kept, self._newest, self._stride = self._kept[::2], self._newest or self._kept[-1], self._stride * 2
            self._count = 1
        return True

    def restarted(self) -> None:
        """Records that the run has restarted. After this call, a report of an earlier step adds a new point."""
        self._stored_to = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the curve as plain data.

        Each point is a list. The first element is the step or the percentage. The other elements are the values of the
        metrics, in the order of `names`. If a metric was not reported at this point, its value is None.
        """
        width = len(self._names) + 1
        shown = [*self._kept, self._newest] if self._newest and self._newest != self._kept[-1] else self._kept
        points = [[*point, *[None] * (width - len(point))] for point in shown]
        return {"x": self._x, "names": list(self._names), "points": points, "stride": self._stride}

    def _drop_from(self, at: float) -> None:
        if self._newest is not None and (self._newest[0] or 0) >= at:
            self._newest = None
        while self._kept and (self._kept[-1][0] or 0) >= at:
            self._kept.pop()
            self._count = 0


def _position(progress: Progress) -> tuple[str, float | None]:
    if progress.step is not None:
        return _STEP, progress.step
    return _PERCENT, None if progress.progress is None else _finite(round(100 * progress.progress, 2))


def _finite(value: float) -> float | None:
    """Rounds a number to six significant digits.

    Returns None for NaN and infinity, because databases reject these numbers in JSON.
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None
