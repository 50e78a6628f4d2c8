"""The metrics of a training over its steps, with a bounded number of points. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.run_status import Progress

POINTS = 160
"""Maximum points of a curve; of a longer curve, every other point is dropped."""
METRICS = 6
"""Maximum metrics: those that were reported first."""

_NAME = 40
Point = list[float | None]
_STEP, _PERCENT = "step", "percent"


class Curve:
    """Metrics over steps, or over the progress in percent if the training reports no steps.

    `stored` is an earlier result of `to_dict` for the same run.
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
        """Adds the training's last report; returns whether it is a new point.

        After a restart from a checkpoint, the points after the checkpoint are dropped. Reports that repeat stored
        points, because a log is read from its beginning again, are ignored.
        """
        x, at = _position(progress)
        values = {name[:_NAME]: _finite(value) for name, value in progress.metrics.items()}
        if at is None or not values:
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
        """Marks a restart of the training, after which reports of earlier steps are new points."""
        self._stored_to = None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data; a point is its position and a value or None for each of `names`."""
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
    """Returns a number rounded to six digits, more than a chart shows; None for NaN, which databases reject as JSON."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
