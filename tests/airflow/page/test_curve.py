"""The metrics of a training over its steps, in a bounded number of points."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable

from stepset.run_status import Progress
from stepset_airflow.page.curve import METRICS, POINTS, Curve


def curve_of(steps: Iterable[int], curve: Curve | None = None) -> Curve:
    """A curve of a loss that is 1/step."""
    curve = curve or Curve()
    for step in steps:
        curve.add(Progress(step=step, metrics={"loss": 1 / step}))
    return curve


def steps_of(curve: Curve) -> list[float]:
    return [point[0] for point in curve.to_dict()["points"]]


def test_few_points_are_all_kept() -> None:
    stored = curve_of(range(1, 4)).to_dict()
    assert stored["x"] == "step"
    assert stored["names"] == ["loss"]
    assert stored["points"] == [[1, 1.0], [2, 0.5], [3, 0.333333]]


def test_a_bounded_number_of_many_points_is_kept_from_the_first_to_the_newest() -> None:
    for last in (POINTS, POINTS + 1, 1000, 4321):
        steps = steps_of(curve_of(range(1, last + 1)))
        assert len(steps) <= POINTS + 1
        assert (steps[0], steps[-1]) == (1, last)
        assert steps == sorted(set(steps))
        gaps = [after - before for before, after in itertools.pairwise(steps)]
        assert max(gaps[:-1]) <= 2 * min(gaps[:-1]), "the points are spread evenly"


def test_a_training_that_resumes_from_a_checkpoint_removes_the_points_after_it() -> None:
    curve = curve_of(range(1, 101))
    curve_of(range(41, 51), curve)
    assert steps_of(curve) == list(range(1, 51))


def test_a_log_that_is_read_again_adds_no_point_twice() -> None:
    stored = json.loads(json.dumps(curve_of(range(1, 51)).to_dict()))
    again = curve_of(range(1, 61), Curve(stored))
    assert steps_of(again) == list(range(1, 61))


def test_a_restart_after_a_log_was_read_again_removes_points() -> None:
    curve = Curve(curve_of(range(1, 51)).to_dict())
    curve.restarted()
    assert steps_of(curve_of(range(21, 26), curve)) == list(range(1, 26))


def test_a_training_without_steps_is_drawn_over_its_progress() -> None:
    curve = Curve()
    curve.add(Progress(progress=0.25, metrics={"loss": 2}))
    assert (curve.to_dict()["x"], curve.to_dict()["points"]) == ("percent", [[25.0, 2.0]])


def test_a_value_that_is_not_finite_is_a_gap_and_the_json_is_valid() -> None:
    curve = Curve()
    curve.add(Progress(step=1, metrics={"loss": math.nan, "lr": math.inf}))
    assert curve.to_dict()["points"] == [[1, None, None]]
    json.dumps(curve.to_dict(), allow_nan=False)


def test_a_metric_that_is_no_longer_defined_is_a_gap() -> None:
    curve = curve_of([1])
    curve.add(Progress(step=2))
    assert curve.to_dict()["points"] == [[1, 1.0], [2, None]]


def test_a_metric_that_appears_later_has_no_earlier_values() -> None:
    curve = curve_of([1])
    curve.add(Progress(step=2, metrics={"loss": 0.5, "accuracy": 0.9}))
    assert curve.to_dict()["points"] == [[1, 1.0, None], [2, 0.5, 0.9]]


def test_only_the_first_of_many_metrics_are_kept() -> None:
    curve = Curve()
    curve.add(Progress(step=1, metrics={f"m{number}": number for number in range(20)}))
    assert curve.to_dict()["names"] == [f"m{number}" for number in range(METRICS)]


def test_progress_without_metrics_or_without_a_step_adds_no_point() -> None:
    curve = Curve()
    assert not curve.add(Progress(step=1))
    assert not curve.add(Progress(metrics={"loss": 1}))
    assert curve.to_dict()["points"] == []
