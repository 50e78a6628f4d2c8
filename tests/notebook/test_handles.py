"""The handle of a submitted run: it reads, follows and ends the run, and reports that the run was deleted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepset
from tests.local.conftest import wait_for

pytestmark = pytest.mark.local


def _doubles() -> Callable[[int], int]:
    """Returns a function of another function, of which only the source is shipped."""

    def double(number: int) -> int:
        print(f"doubling {number}")
        return 2 * number

    return double


def _sleeps() -> Callable[[str], None]:
    def sleep(path: str) -> None:
        import pathlib
        import time

        pathlib.Path(path).write_text("started")
        print("started", flush=True)
        time.sleep(600)

    return sleep


def test_a_handle_reads_the_run(home: Path) -> None:
    run = stepset.submit(_doubles(), framework="plain", args=[2])
    assert run.result() == 4
    assert [line.text for line in run.logs()] == ["doubling 2"]
    assert [line.text for line in run.logs(tail=1)] == ["doubling 2"]
    assert run.status().phase is stepset.Phase.SUCCEEDED
    assert "succeeded" in stepset.diagnose(run.name)
    assert [found.name for found in stepset.list_runs(phase="succeeded")] == [run.name]
    assert run.cancel().phase is stepset.Phase.SUCCEEDED


def test_a_handle_waits_for_a_limited_time_and_cancels(tmp_path: Path, home: Path) -> None:
    run = stepset.submit(_sleeps(), framework="plain", args=[str(tmp_path / "started")])
    wait_for(tmp_path / "started")
    assert not run.wait(timeout=0.1).phase.final
    with pytest.raises(stepset.BadInputError, match=run.name):
        stepset.delete(run.name)
    followed = run.logs(follow=True)
    assert next(followed).text == "started"
    ended = run.cancel()
    assert ended.failure is not None
    assert ended.failure.kind is stepset.FailureKind.CANCELLED
    assert list(followed) == []
    with pytest.raises(stepset.TrainingFailedError) as caught:
        run.result()
    assert caught.value.status == ended
    assert re.fullmatch(
        rf"run {run.name} was cancelled after [\d.]+ s: the ranks could use up to 50 s to save\."
        rf" {re.escape(ended.failure.advice)}",
        str(caught.value),
    )


def test_several_runs_are_cancelled_in_one_call(tmp_path: Path, home: Path) -> None:
    runs = [stepset.submit(_sleeps(), framework="plain", args=[str(tmp_path / str(number))]) for number in range(2)]
    ended = stepset.cancel([runs[0], runs[1].name])
    assert [status.name for status in ended] == [run.name for run in runs]
    assert {status.reason for status in ended} == {"Cancelled"}
    assert stepset.cancel(stepset.list_runs()) == stepset.list_runs()
    assert stepset.cancel([]) == []


def test_an_unknown_name_that_is_similar_to_a_job_is_an_error_with_a_suggestion(home: Path) -> None:
    stepset.run({"command": ["true"], "framework": "plain", "name": "train"})
    with pytest.raises(stepset.RunNotFoundError, match=r"^trian: no such run, .*did you mean 'train'"):
        stepset.status("trian")
    with pytest.raises(stepset.RunNotFoundError, match=r"of that name; stepset.list_runs\(\) shows the names of"):
        stepset.status("other")


@pytest.mark.parametrize("of_run", [lambda run: run, lambda run: run.status(), lambda run: run.name])
def test_functions_take_a_handle_a_status_or_a_name(of_run: Callable[[stepset.Run], Any], home: Path) -> None:
    run = stepset.submit(_doubles(), framework="plain", args=[2])
    run.wait()
    given = of_run(run)
    assert stepset.status(given).name == run.name
    assert [line.text for line in stepset.logs(given)] == ["doubling 2"]
    assert stepset.cancel(given).phase is stepset.Phase.SUCCEEDED
    assert "succeeded" in stepset.diagnose(given)
    assert asyncio.run(stepset.aio.status(given)) == asyncio.run(stepset.aio.wait(given)) == run.status()
    assert [line.text for line in asyncio.run(_lines_in_an_event_loop(given))] == ["doubling 2"]
    assert stepset.run(given, resume=True).continues == run.name
    assert [gone.name for gone in stepset.delete(given)] == [run.name]
    assert [gone.job for gone in stepset.delete(stepset.list_runs())] == ["double"]


def test_other_objects_are_no_runs(home: Path) -> None:
    with pytest.raises(
        stepset.BadInputError, match=r"^name: int 3 is not a run; give its name, its Run or its RunStatus$"
    ):
        stepset.status(3)  # type: ignore[arg-type]  # this is the test
    local, remote = stepset.Run("a"), stepset.Run("b", "kubernetes")
    with pytest.raises(stepset.BadInputError, match=r"^names: b has another backend or cluster than a; use two calls$"):
        stepset.delete([local, remote])
    with pytest.raises(stepset.BadInputError, match=r"^job: a is a run; to continue it, add resume=True$"):
        stepset.run(local)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(lambda run: run.status(), id="status"),
        pytest.param(lambda run: list(run.logs()), id="logs"),
        pytest.param(lambda run: list(run.logs(follow=True)), id="logs of a followed run"),
        pytest.param(lambda run: list(run.logs(tail=1)), id="last lines"),
        pytest.param(lambda run: list(run.logs(ranks=0)), id="logs of a rank"),
        pytest.param(lambda run: run.wait(), id="wait"),
        pytest.param(lambda run: run.cancel(), id="cancel"),
        pytest.param(lambda run: run.cancel(kill=True), id="kill"),
        pytest.param(lambda run: run.result(), id="result"),
        pytest.param(lambda run: stepset.diagnose(run.name), id="diagnose"),
        pytest.param(lambda run: stepset.delete(run.name), id="delete"),
    ],
)
def test_a_handle_of_a_deleted_run_reports_that_the_run_does_not_exist(
    method: Callable[[stepset.Run], Any], deleted: stepset.Run
) -> None:
    with pytest.raises(stepset.RunNotFoundError, match=deleted.name):
        method(deleted)


@pytest.fixture(scope="module")
def deleted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The handle of a run that was deleted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSET_HOME", str(tmp_path_factory.mktemp("home")))
        run = stepset.submit(_doubles(), framework="plain", args=[1])
        run.wait()
        assert [gone.name for gone in stepset.delete(run.name, dry_run=True)] == [run.name]
        assert run.status().phase.final
        assert [gone.name for gone in stepset.delete(run.name)] == [run.name]
        yield run


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"ranks": 5}, "ranks: .* has no rank 5; it has rank 0 alone"),
        ({"ranks": "0-x"}, "ranks: '0-x' is neither a rank nor a range"),
        ({"ranks": "rank0"}, "ranks: .* has no source 'rank0'; it has rank 0 alone"),
        ({"ranks": ["Rank 0"]}, "ranks: .* has no source 'Rank 0'; it has rank 0 alone"),
        ({"tail": -1}, "tail: -1 is too small"),
        ({"follow": True, "previous": True}, "previous: the previous attempt is over; leave out follow"),
    ],
)
def test_invalid_arguments_of_logs_are_rejected_by_name(arguments: dict[str, Any], error: str, home: Path) -> None:
    run = stepset.submit(_doubles(), framework="plain", args=[1], run_name="doubled")
    run.wait()
    with pytest.raises(stepset.BadInputError, match=error):
        stepset.logs(run.name, **arguments)
    with pytest.raises(stepset.BadInputError, match=error):
        asyncio.run(_lines_in_an_event_loop(run.name, **arguments))


@pytest.mark.parametrize("arguments", [{}, {"ranks": 1}, {"ranks": "0-1", "tail": 1}, {"ranks": [0], "since": 600}])
def test_logs_in_an_event_loop_have_the_same_arguments(arguments: dict[str, Any], home: Path) -> None:
    run = stepset.submit(_doubles(), framework="plain", num_nodes=2, args=[1])
    run.wait()
    expected = list(run.logs(**arguments))
    assert expected
    assert asyncio.run(_lines_in_an_event_loop(run.name, **arguments)) == expected


async def _lines_in_an_event_loop(name: Any, **arguments: Any) -> list[stepset.LogLine]:
    return [line async for line in stepset.aio.logs(name, **arguments)]
