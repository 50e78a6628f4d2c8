"""Line charts as SVG text, drawn in the colours of the page that contains them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from stepset_kfp.outputs.escaped import escaped

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_TICKS = 4

Projection = Callable[[float, float], tuple[float, float]]


def line_chart(points: Sequence[tuple[float, float]], label: str) -> str:
    """Returns a chart of points (x, y) in the order of their times; empty text for fewer than two finite points.

    Where x decreases, as after a restart, a new curve begins. `label` describes y for screen readers.
    """
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(finite) < 2:
        return ""
    x_low = min(x for x, _ in finite)
    x_high = max(*(x for x, _ in finite), x_low + 1e-9)
    y_low, y_high = min(y for _, y in finite), max(y for _, y in finite)
    if y_high - y_low <= 1e-9 * abs(y_high):
        room = abs(y_high) / 2 or 0.5
        y_low, y_high = y_low - room, y_high + room

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">',
        *_grid([y_low + (y_high - y_low) * i / _TICKS for i in range(_TICKS + 1)], at, x_low),
        *_x_axis(_ticks([x for x, _ in finite], x_low, x_high), at, y_low),
        *(
            f'<polyline class="curve" points="{" ".join("{:.1f},{:.1f}".format(*at(*point)) for point in curve)}"/>'
            for curve in _curves(finite)
        ),
        *(
            f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="3"><title>{x:g}: {y:.4g}</title></circle>'
            for (x, y), (px, py) in ((each, at(*each)) for each in (finite if len(finite) <= 60 else finite[-1:]))
        ),
        "</svg>",
    ]
    return "\n".join(parts)


def _curves(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Splits points into curves: a new curve begins at each point whose x is less than that of the point before."""
    runs = [[points[0]]]
    for before, point in pairwise(points):
        if point[0] < before[0]:
            runs.append([])
        runs[-1].append(point)
    return runs


def _ticks(values: Sequence[float], low: float, high: float) -> list[float]:
    """Returns the ticks of the x axis: whole numbers if all values are whole."""
    ticks = [low + (high - low) * i / _TICKS for i in range(_TICKS + 1)]
    whole = all(float(value).is_integer() for value in values)
    return sorted({float(round(tick)) for tick in ticks}) if whole else ticks


def _grid(values: Sequence[float], at: Projection, x_low: float) -> Iterator[str]:
    for value in values:
        _, y = at(x_low, value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'


def _x_axis(values: Sequence[float], at: Projection, y_low: float) -> Iterator[str]:
    for value in values:
        x, _ = at(value, y_low)
        yield f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{value:.6g}</text>'
