"""Line charts as SVG text, drawn in the colours of the page they stand in. Pure; called by report.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_TICKS = 4

Place = Callable[[float, float], tuple[float, float]]


def line_chart(points: Sequence[tuple[float, float]], label: str) -> str:
    """A curve with its axes; empty text for fewer than two finite points.

    Args:
        points: (x, y), in the order of x.
        label: what y is, for readers that do not see the picture.
    """
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(finite) < 2:
        return ""
    x_low, x_high = finite[0][0], max(finite[-1][0], finite[0][0] + 1e-9)
    y_low, y_high = min(y for _, y in finite), max(y for _, y in finite)
    if y_high - y_low < 1e-12:
        y_low, y_high = y_low - 0.5, y_high + 0.5

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    curve = " ".join(f"{px:.1f},{py:.1f}" for px, py in (at(x, y) for x, y in finite))
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
        *_grid([y_low + (y_high - y_low) * i / _TICKS for i in range(_TICKS + 1)], at, x_low),
        *_steps([x_low + (x_high - x_low) * i / _TICKS for i in range(_TICKS + 1)], at, y_low),
        f'<polyline class="curve" points="{curve}"/>',
        *(
            f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="3"><title>{x:g}: {y:.4g}</title></circle>'
            for (x, y), (px, py) in ((each, at(*each)) for each in (finite if len(finite) <= 60 else finite[-1:]))
        ),
        "</svg>",
    ]
    return "\n".join(parts)


def _grid(values: Sequence[float], at: Place, x_low: float) -> Iterator[str]:
    for value in values:
        _, y = at(x_low, value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'


def _steps(values: Sequence[float], at: Place, y_low: float) -> Iterator[str]:
    for value in values:
        x, _ = at(value, y_low)
        yield f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{value:.4g}</text>'
