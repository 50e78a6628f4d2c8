"""The HTML of a status is escaped, self-contained and of bounded size."""

from __future__ import annotations

from stepset import Failure, FailureKind, Phase, Progress, ProgressPoint, RankStatus, RunStatus

HOSTILE = '<script>alert(1)</script><img src="https://example.org/x">\x1b[2J'


def _failed(text: str, ranks: int) -> RunStatus:
    failure = Failure(FailureKind.USER_ERROR, text, text, 3, text, text, 1, None, text, (text,) * 100, (text,))
    rows = tuple(
        RankStatus(f"rank {n}", n, text, text, "Failed" if n == 999 else text, 0, 1, None, text) for n in range(ranks)
    )
    points = tuple(ProgressPoint(float(n), Progress(n, None, {text: 1.0 / (n + 1)})) for n in range(160))
    return RunStatus(
        text, text, "local", Phase.FAILED, ranks=rows, failure=failure, notes=(text,) * 50, points=points, result=[text]
    )


def test_text_of_the_training_is_escaped_and_nothing_is_loaded() -> None:
    shown = _failed(HOSTILE, 4)._repr_html_()
    assert "&lt;script&gt;" in shown
    assert not any(tag in shown for tag in ("<script", "<img", "<link", "@import", "url(", "\x1b"))


def test_the_size_is_bounded() -> None:
    assert len(_failed("x" * 100_000, 1000)._repr_html_()) < 150_000


def test_the_failed_rank_is_the_first_row_of_many() -> None:
    shown = _failed("a", 1000)._repr_html_()
    assert "rank 999" in shown
    assert "and 950 more rows" in shown


def test_points_make_a_curve_and_are_not_stored() -> None:
    status = _failed("loss", 1)
    assert '<polyline class="curve"' in status._repr_html_()
    assert "points" not in status.to_dict()
