"""At a deadline, the message names the ranks that have not ended, and the advice is not a longer deadline.

Source: pytorch/pytorch#75097, a process that hangs in destroy_process_group.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import stepset
from stepset.errors import TrainingFailedError
from stepset.run_status import RankStatus, RunStatus
from stepset.watch.advice import hang_advice
from stepset.watch.deadline import exceeded_deadline
from stepset.watch.diagnose import diagnose

NOW = 1000.0


def failure_of(*states: str, age: float = 1.0, started: float = 100.0) -> stepset.Failure:
    rows = tuple(
        RankStatus(f"rank {n}", n, "node-0", state=state, last_line="done", last_line_at=NOW - age)
        for n, state in enumerate(states)
    )
    status = RunStatus("a-1", "a", "local", started=started, ranks=rows)
    failure = diagnose([exceeded_deadline("1h", status, lambda _: ("done",), NOW, torch=True)])
    assert failure is not None
    return failure


@pytest.mark.parametrize("age", [1.0, 60.0])
@pytest.mark.parametrize("started", [100.0, NOW - 2])
def test_the_ranks_that_have_not_ended_are_named_even_if_they_print(age: float, started: float) -> None:
    failure = failure_of("Succeeded", "Running", "Succeeded", "Running", age=age, started=started)
    assert "rank 0, rank 2 had exited with code 0 while rank 1, rank 3 still ran" in failure.message
    assert failure.advice.startswith("Find out why rank 1, rank 3 had not exited: ")
    assert "longer deadline" not in failure.advice


def test_without_a_rank_that_has_ended_the_advice_is_that_for_a_hang() -> None:
    assert failure_of("Running", "Running", age=60.0).advice == hang_advice(torch=True)


@pytest.mark.parametrize("states", [("Running", "Running"), ("Succeeded", "Succeeded"), ("Failed", "Running")])
def test_without_both_kinds_of_ranks_a_run_that_prints_may_need_a_longer_deadline(states: tuple[str, ...]) -> None:
    failure = failure_of(*states)
    assert "still ran" not in failure.message
    assert "longer deadline" in failure.advice


@pytest.mark.local
def test_a_local_rank_that_hangs_at_its_exit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(
        "import os, threading, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('trained')\n"
    )
    with pytest.raises(TrainingFailedError) as raised:
        stepset.run(
            tmp_path / "train.py", framework={"kind": "torch", "launcher": "none"}, procs_per_node=2, deadline="4s"
        )
    failure = raised.value.status.failure
    assert failure is not None
    assert "rank 0 had exited with code 0 while rank 1 still ran" in failure.message
    assert failure.advice.startswith("Find out why rank 1 had not exited: ")
