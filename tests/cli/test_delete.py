"""`stepset delete --job` and `stepset prune --older-than`: several runs, with a question on a terminal."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import stepset
from stepset.backends.local.runs.store import RunStore
from stepset.run_status import Phase, RunStatus
from stepset.spec import TrainingJob
from tests.cli.conftest import STEPSET, Cli
from tests.first_hour.shell import Shown, in_terminal
from tests.waiting import LIMIT


@pytest.fixture
def known(cli: Cli) -> Cli:
    """The command line, with two ended runs of the job `digits`, and one of another job."""
    store = RunStore(Path(os.environ["STEPSET_HOME"]))
    for name, job in (("digits-1", "digits"), ("digits-2", "digits"), ("other-1", "other")):
        at, labels = time.time() - int(name[-1]), {"team": "vision"} if job == "other" else {}
        status = RunStatus(name, job, "local", phase=Phase.SUCCEEDED, created=at, finished=at, labels=labels)
        os.close(store.create(status, TrainingJob(command=["true"]))[1])
    return cli


def typed(answer: bytes, *flags: str) -> Shown:
    """Runs `stepset delete --job digits` in a terminal, in which a user types an answer."""
    return in_terminal([STEPSET, "delete", "--job", "digits", *flags], Path(), os.environ, 80, answer)


def left(cli: Cli) -> list[str]:
    return cli("list", "-o", "name").out.split()


def test_all_runs_of_a_job_are_deleted_in_a_pipe_without_a_question(known: Cli) -> None:
    dry = known("delete", "--job", "digits", "--dry-run")
    assert (dry.code, dry.out, dry.err) == (0, "digits-1\ndigits-2\n", "stepset: would delete 2 runs\n")
    assert len(left(known)) == 3
    assert known("delete", "--job", "digits").out == "digits-1\ndigits-2\n"
    assert left(known) == ["other-1"]


def test_all_runs_with_given_labels_are_deleted(known: Cli) -> None:
    assert known("delete", "-l", "team=vision", "--job", "other").out == "other-1\n"
    assert left(known) == ["digits-1", "digits-2"]


def test_a_terminal_asks_before_it_deletes_the_runs_of_a_job(known: Cli) -> None:
    kept = typed(b"\n")
    assert kept.code == 130
    assert "digits-1\ndigits-2\nstepset: delete 2 runs of job digits? [y/N] " in kept.text
    assert "stepset: deleted nothing" in kept.text
    assert len(left(known)) == 3
    assert typed(b"y\n").code == 0
    assert left(known) == ["other-1"]


def test_yes_answers_the_question(known: Cli) -> None:
    done = typed(b"", "--yes")
    assert (done.code, "[y/N]" in done.text) == (0, False)
    assert left(known) == ["other-1"]


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ((), "give the names of runs ('stepset list' shows the names), --job NAME or -l LABELS"),
        (("digits-1", "--job", "digits"), "give either the names of runs, or --job NAME or -l LABELS"),
        (("digits-1", "-l", "team=vision"), "give either the names of runs, or --job NAME or -l LABELS"),
        (("-l", "team=audio"), "--selector: there is no run with labels team=audio in "),
        (("-l", "team=vision", "--job", "digits"), "--selector: there is no run of job digits with labels team=vision"),
        (("-l", "="), "--selector: '=' is not a label selector"),
        (("--job", "digits-1"), "digits-1: there is no run of a job of this name in "),
    ],
)
def test_a_request_without_runs_deletes_nothing(known: Cli, argv: tuple[str, ...], error: str) -> None:
    wrong = known("delete", *argv)
    assert (wrong.code, wrong.out, len(wrong.errors)) == (2, "", 1)
    assert wrong.err.startswith(f"stepset: {error}")
    assert len(left(known)) == 3


def test_one_of_several_names_that_is_wrong_deletes_nothing_and_says_so(known: Cli) -> None:
    wrong = known("delete", "digits-1", "nosuch", "digits-2")
    assert (wrong.code, wrong.out, wrong.errors[0]) == (2, "", "stepset: deleted nothing")
    assert wrong.errors[1].startswith("stepset: nosuch: no such run, ")
    assert len(left(known)) == 3


def test_nothing_is_deleted_while_a_run_of_the_job_is_not_over(known: Cli) -> None:
    status = RunStatus("digits-3", "digits", "local", phase=Phase.RUNNING, created=time.time())
    lock = RunStore(Path(os.environ["STEPSET_HOME"])).create(status, TrainingJob(command=["true"]))[1]
    try:
        wrong = known("delete", "--job", "digits", "--yes")
    finally:
        os.close(lock)
    assert (wrong.code, wrong.out) == (2, "")
    assert "digits-3: the run is not over: Running; cancel it first" in wrong.err
    assert len(left(known)) == 4


def test_python_deletes_the_runs_of_a_job(known: Cli) -> None:
    with pytest.raises(stepset.BadInputError, match="give either the names of runs, or job"):
        stepset.delete()
    with pytest.raises(stepset.BadInputError, match="give either the names of runs, or job"):
        stepset.delete([], job="digits")
    assert stepset.delete(stepset.list_runs(phase="lost")) == []
    assert len(left(known)) == 3
    assert [run.name for run in stepset.delete(job="digits", dry_run=True)] == ["digits-1", "digits-2"]
    assert [run.name for run in stepset.delete(job="digits")] == ["digits-1", "digits-2"]
    assert left(known) == ["other-1"]


def test_a_terminal_also_asks_before_it_deletes_the_runs_of_an_age(known: Cli) -> None:
    command = [STEPSET, "prune", "--older-than", "1s"]
    time.sleep(1)
    kept = in_terminal(command, Path(), os.environ, 80, b"\n")
    assert (kept.code, "\nstepset: delete 3 runs? [y/N] " in kept.text, len(left(known))) == (130, True, 3)
    assert in_terminal(command, Path(), os.environ, 80, b"y\n").code == 0
    assert left(known) == []
    assert "[y/N]" not in in_terminal(command, Path(), os.environ, 80, b"").text


def test_after_the_question_only_the_shown_runs_that_still_have_the_age_are_deleted(known: Cli) -> None:
    """While the question is open, one run is deleted, another is replaced by a new run, and a third run ends."""
    time.sleep(1)
    store = RunStore(Path(os.environ["STEPSET_HOME"]))
    ours, theirs = os.openpty()
    command, shown = [STEPSET, "prune", "--older-than", "1s"], b""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while b"[y/N]" not in shown:
            shown += os.read(ours, 65536)
        store.delete(["digits-1", "digits-2"])
        at = time.time() - 100
        for name in ("digits-2", "later"):
            status = RunStatus(name, "digits", "local", phase=Phase.SUCCEEDED, created=at, finished=at)
            os.close(store.create(status, TrainingJob(command=["true"]))[1])
        os.write(ours, b"y\n")
        assert process.wait(LIMIT) == 0
    os.close(ours)
    assert sorted(left(known)) == ["digits-2", "later"]
