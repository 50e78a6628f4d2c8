"""Draws line charts as SVG text, in the colours of the page that contains them. Contains only pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stepset.html.escaped import escaped
from stepset.html.ticks import tick_label, ticks
from stepset.run_status import ProgressPoint

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_LABEL = 80
"""The maximum number of characters of a metric's name in a label."""
_FLAT_X, _FLAT = 1e-9, 1e-6
"""The maximum relative differences of two positions and of two values that are treated as equal. Without these limits,
the labels of ticks could be very long."""
_LARGEST = 1e300
"""The largest value that is drawn. With larger values, the length of the axis would not be finite."""

Projection = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class MetricChart:
    """The chart of a metric. `over` is the unit of the x axis: `steps` or `seconds`."""

    metric: str
    over: str
    svg: str


def metric_charts(points: Sequence[ProgressPoint]) -> Iterator[MetricChart]:
    """Yields a chart for each metric. The chart of the loss is first.

    The x axis shows steps. If a report has no step, the x axis shows seconds.
    """
    found = dict.fromkeys(name for point in points for name in point.progress.metrics)
    places = {name: place for place, name in enumerate(found)}
    stepped = all(point.progress.step is not None for point in points)
    over = "steps" if stepped else "seconds"
    for name in sorted(places, key=lambda name: ("loss" not in name.lower(), places[name])):
        values = [
            (
                float(point.progress.step or 0) if stepped else point.at - points[0].at,
                point.progress.metrics.get(name, math.nan),
            )
            for point in points
        ]
        if svg := line_chart(values, f"{name[:_LABEL]} over {over}"):
            yield MetricChart(name, over, svg)


def line_chart(points: Sequence[tuple[float, float]], label: str) -> str:
    """Returns a chart of points (x, y), which are sorted by time. Returns "" for fewer than two finite points.

    If x decreases, for example after a restart, a new curve begins. The curve has a gap where y is not finite. `label`
    describes y for screen readers.
    """
    finite = [(float(x), float(y)) for x, y in points if _is_drawn(x, y)]
    if len(finite) < 2:
        return ""
    x_low, x_high = _range([x for x, _ in finite], _FLAT_X)
    y_low, y_high = _range([y for _, y in finite], _FLAT)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">',
        *_grid(ticks(y_low, y_high), at, x_low),
        *_x_axis(ticks(x_low, x_high, whole=all(x.is_integer() for x, _ in finite)), at, y_low),
        *(
            f'<polyline class="curve" points="{" ".join("{:.1f},{:.1f}".format(*at(*point)) for point in curve)}"/>'
            for curve in _curves(points)
        ),
        *(
            f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="3"><title>{x:g}: {y:.4g}</title></circle>'
            for (x, y), (px, py) in ((each, at(*each)) for each in (finite if len(finite) <= 60 else finite[-1:]))
        ),
        "</svg>",
    ]
    return "\n".join(parts)


def _range(values: Sequence[float], flat: float) -> tuple[float, float]:
    """Returns the two ends of an axis for some values.

    If the relative difference of the values is at most `flat`, the values are in the middle of the axis.
    """
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low > flat * size:
        return low, high
    room = size / 2 or 0.5
    return low - room, high + room


def _is_drawn(x: float, y: float) -> bool:
    return abs(x) <= _LARGEST and abs(y) <= _LARGEST


def _curves(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Splits points into curves, and leaves out points that are not finite.

    A new curve begins after such a point, and at each point whose x is less than the x of the previous point.
    """
    curves: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        drawn, curve = _is_drawn(x, y), curves[-1]
        if curve and (not drawn or x < curve[-1][0]):
            curves.append([])
        if drawn:
            curves[-1].append((x, y))
    return [curve for curve in curves if curve]


def _grid(values: Sequence[float], at: Projection, x_low: float) -> Iterator[str]:
    for value in values:
        _, y = at(x_low, value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_label(value)}</text>'


def _x_axis(values: Sequence[float], at: Projection, y_low: float) -> Iterator[str]:
    for value in values:
        x, _ = at(value, y_low)
        yield f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{tick_label(value)}</text>'
