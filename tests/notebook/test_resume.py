"""`resume` and `fresh` of the Python API: the rules are those of `stepset run --resume` and `--fresh`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.html.escaped import escaped

pytestmark = pytest.mark.local


def _saves() -> Callable[[str], dict[str, Any]]:
    """Returns a function that writes a checkpoint, and fails if its argument is `fail`."""

    def train(how: str) -> dict[str, Any]:
        import os
        import pathlib

        directory = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
        (directory / f"step-{len(list(directory.iterdir()))}").write_text("")
        if how == "fail":
            raise ValueError("as requested")
        return {"from": os.environ.get("STEPSET_RESUME_FROM"), "attempt": os.environ["STEPSET_ATTEMPT"]}

    return train


def _saves_nothing() -> Callable[[], str | None]:
    def train() -> str | None:
        import os

        return os.environ.get("STEPSET_CHECKPOINT_DIR")

    return train


def _in_an_event_loop(job: str, **arguments: Any) -> stepset.RunStatus:
    return asyncio.run(stepset.aio.run(job, **arguments))


@pytest.fixture
def checkpoints(home: Path, tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def test_resume_continues_the_last_run_a_named_run_or_the_runs_of_a_job(checkpoints: str) -> None:
    train = _saves()
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(train, framework="plain", checkpoint_dir=checkpoints, args=["fail"])
    failed = caught.value.status
    again = stepset.run(train, framework="plain", checkpoint_dir=checkpoints, args=["ok"], resume=True)
    assert again.result == {"from": checkpoints, "attempt": "1"}
    assert f"continuing run {failed.name}, attempt 1, checkpoint_dir {checkpoints}" in again.notes
    assert stepset.run(resume=True).result == {"from": checkpoints, "attempt": "2"}
    assert stepset.run("train", resume=True).result == {"from": checkpoints, "attempt": "3"}
    assert stepset.submit(again.name, resume=True).result() == {"from": checkpoints, "attempt": "2"}
    assert asyncio.run(stepset.aio.run("train", resume=True)).result == {"from": checkpoints, "attempt": "3"}


def _runs(status: stepset.RunStatus) -> list[object]:
    """Returns each object that shows the state of a run."""
    return [status, stepset.diagnose(status.name), stepset.status(status.name), stepset.Run(status.name).wait()]


def test_a_run_that_can_be_continued_shows_the_call(checkpoints: str) -> None:
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["fail"])
    call = f"stepset.run({caught.value.status.name!r}, resume=True)"
    for shown in _runs(caught.value.status):
        assert f"resume        {call}" in str(shown)
        assert escaped(call) in shown._repr_html_()  # type: ignore[attr-defined]  # each type has this method
    assert escaped(call) in caught.value._repr_html_()


def test_a_run_of_a_function_states_which_function_each_call_uses(checkpoints: str) -> None:
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["fail"], name="digits")
    status = caught.value.status
    rows = (
        f"  resume        stepset.run({status.name!r}, resume=True) calls the stored function train\n"
        "                stepset.run(train, name='digits', resume=True, ...) calls the edited function train\n"
    )
    assert rows in str(status)
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(status.name, resume=True)
    edited = "stepset.run(train, name='digits', resume=True, ...)"
    note = f"the run calls the stored function train; to call an edited function, use {edited}"
    assert note in caught.value.status.notes


def test_a_run_that_succeeded_or_has_no_checkpoint_shows_no_call(checkpoints: str) -> None:
    succeeded = stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["ok"])
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run({"framework": "plain", "command": ["false"]})
    for status in (succeeded, caught.value.status):
        assert not any("resume" in text for shown in _runs(status) for text in (str(shown), shown._repr_html_()))  # type: ignore[attr-defined]  # each type has this method


def test_resume_states_that_there_is_no_checkpoint(checkpoints: str) -> None:
    stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["ok"])
    (Path(checkpoints) / "step-0").unlink()
    again = stepset.run(resume=True)
    assert f"no checkpoint was found in {checkpoints}, so the training starts from its beginning" in again.notes


def test_the_arguments_of_a_function_are_changed_only_with_the_function(checkpoints: str) -> None:
    train = _saves()
    first = stepset.run(train, framework="plain", checkpoint_dir=checkpoints, args=["ok"])
    for args in (["fail"], {"how": "fail"}):
        with pytest.raises(stepset.BadInputError) as caught:
            stepset.run(first.name, resume=True, args=args)
        assert str(caught.value).startswith(f"args: run {first.name} called a function")
        assert str(caught.value).endswith(f"call stepset.run(train, resume=True, args={args!r}) in Python")
    assert stepset.list_runs() == [first]


def test_an_edited_function_inherits_the_fields_of_the_earlier_run(checkpoints: str) -> None:
    labels = {"team": "a", "kept": "c", "old": "d"}
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["fail"], labels=labels)
    failed = caught.value.status
    again = stepset.run(_saves(), resume=True, args=["ok"], labels={"team": "b", "old": None})
    assert again.result == {"from": checkpoints, "attempt": "1"}
    assert again.labels == {"team": "b", "kept": "c"}
    [note] = [note for note in again.notes if note.startswith(f"fields of run {failed.name}: ")]
    assert {"framework", "checkpoint_dir", "labels"} <= set(note.partition(": ")[2].split(", "))
    without = stepset.run(_saves_nothing(), name="train", resume=True, checkpoint_dir=None)
    assert without.result is None
    begins = f"nothing to continue: run {again.name} succeeded, and the job has no checkpoint_dir, so the training"
    assert [note for note in without.notes if again.name in note and "fields of" not in note] == [
        f"{begins} starts from its beginning, with attempt 2"
    ]


def test_a_run_that_starts_from_the_checkpoint_of_a_finished_training_has_a_note(checkpoints: str) -> None:
    job: dict[str, Any] = {"framework": "plain", "checkpoint_dir": checkpoints}
    first = stepset.run(_saves(), args=["ok"], **job)
    with pytest.raises(stepset.TrainingFailedError) as failed:
        stepset.run(_saves(), args=["fail"], **job)
    (note,) = [note for note in failed.value.status.notes if "already succeeded" in note]
    assert note == (
        f"run {first.name} has already succeeded with this checkpoint_dir, and this run starts from its checkpoint; to"
        " train from the beginning, give fresh=True or another checkpoint_dir"
    )
    after_failure = stepset.run(_saves(), args=["ok"], **job)
    fresh = stepset.run(_saves(), args=["ok"], fresh=True, **job)
    submitted = stepset.submit(_saves(), args=["ok"], **job).wait()
    found = ["already succeeded" in " ".join(status.notes) for status in (after_failure, fresh, submitted)]
    assert found == [False, False, True]


def test_a_fresh_run_ignores_checkpoints_and_keeps_them(checkpoints: str) -> None:
    Path(checkpoints).mkdir()
    (Path(checkpoints) / "old").touch()
    fresh = stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["ok"], fresh=True)
    assert fresh.result == {"from": None, "attempt": "0"}
    handle = stepset.submit(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["ok"], fresh=True)
    assert handle.result() == {"from": None, "attempt": "0"}
    assert (Path(checkpoints) / "old").exists()


def test_a_function_without_its_arguments_is_not_continued_and_the_error_shows_those_of_the_earlier_run(
    home: Path, checkpoints: str
) -> None:
    first = stepset.run(_saves(), framework="plain", checkpoint_dir=checkpoints, args=["ok"])
    with pytest.raises(stepset.BadInputError) as caught:
        stepset.run(_saves(), resume=True)
    message = str(caught.value)
    assert message.startswith("args: they do not fit train: missing a required argument: 'how'")
    assert message.endswith(f"give args, too; run {first.name} is train('ok')")
    assert stepset.list_runs() == [stepset.status(first.name)]


@pytest.mark.parametrize("call", [stepset.run, stepset.submit, _in_an_event_loop])
def test_a_warning_states_that_there_is_nothing_to_resume_from(
    call: Callable[..., Any], home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for fields in ({}, {"checkpoint_dir": str(tmp_path / "empty")}):
        stepset.run({"command": ["true"], "framework": "plain", "name": "short", **fields})
        assert caplog.messages == []
        call("short", resume=True)
        expected = (
            ["continuing run", "run short-", f"no checkpoint was found in {tmp_path / 'empty'}, so the training starts"]
            if fields
            else ["nothing to continue: run short-"]
        )
        for message, start in zip(caplog.messages, expected, strict=True):
            assert message.startswith(f"stepset: {start}")
        assert caplog.messages[-1].removeprefix("stepset: ") in stepset.status("short").notes
        caplog.clear()
    stepset.Run("short").wait()


def test_a_relative_checkpoint_dir_is_an_argument_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = stepset.run(_saves(), framework="plain", checkpoint_dir="ckpt", args=["ok"]).result
    assert result == {"from": None, "attempt": "0"}
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == ["step-0"]
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("command: ['true']\ncheckpoint_dir: ckpt\n")
    remedy = f"checkpoint_dir: 'ckpt' is not an absolute path; start it with '/', such as '{tmp_path}/jobs/ckpt'"
    with pytest.raises(stepset.BadInputError, match=f"^jobs/job.yaml: {remedy}; `stepset run --checkpoint-dir` and"):
        stepset.run("jobs/job.yaml")
    with pytest.raises(stepset.BadInputError, match=f"such as '{tmp_path}/ckpt';"):
        stepset.explain({"command": ["true"], "checkpoint_dir": "ckpt"})
    assert stepset.explain("jobs/job.yaml", checkpoint_dir=Path("ckpt"))


def test_a_home_directory_is_not_expanded_in_a_checkpoint_dir(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("command: ['true']\ncheckpoint_dir: ~/ckpt\n")
    problem = "checkpoint_dir: '~/ckpt' is not an absolute path; start it with '/', because '~' is not expanded"
    calls: list[Callable[[], object]] = [
        lambda: stepset.run(_saves_nothing(), checkpoint_dir="~/ckpt"),
        lambda: stepset.run({"command": ["true"]}, checkpoint_dir=Path("~/ckpt")),
        lambda: stepset.explain("job.yaml"),
    ]
    for call in calls:
        with pytest.raises(stepset.BadInputError) as caught:
            call()
        assert str(caught.value).removeprefix("job.yaml: ") == problem
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"resume": True}, "resume: there is no run in "),
        ({"job": "nope", "resume": True}, "nope: no such run, and no run of a job of that name"),
        ({"job": "nope", "resume": True, "fresh": True}, "fresh: resume continues from the checkpoint; leave one"),
        ({}, "job: missing; give a function"),
        ({"job": "nope", "resume": "ckpt"}, "resume: 'ckpt' is not True or False; give a directory as checkpoint_dir$"),
        ({"job": "nope", "fresh": 1}, "fresh: 1 is not True or False$"),
    ],
)
def test_what_cannot_be_continued_is_an_error(arguments: dict[str, Any], error: str, home: Path) -> None:
    with pytest.raises(stepset.StepsetError, match=f"^{error}"):
        stepset.run(**arguments)


def test_a_run_that_is_not_over_is_not_continued(home: Path, tmp_path: Path) -> None:
    run = stepset.submit({"command": ["sleep", "600"], "framework": "plain"})
    try:
        with pytest.raises(stepset.BadInputError, match=f"^resume: run {run.name} is not over: .*; cancel it first$"):
            stepset.run(run.name, resume=True)
    finally:
        run.cancel(kill=True)
