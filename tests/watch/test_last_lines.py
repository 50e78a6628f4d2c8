"""The last lines of a process: where its error is searched, and which of two observations' lines are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGTERM

from stepset.functions.program import program_text
from stepset.run_status import FailureKind
from stepset.watch.advice import NO_OUTPUT_ADVICE
from stepset.watch.cluster.terminations import _with_error
from stepset.watch.diagnose import KEPT_LINES, TAIL, Observation, merge
from stepset.watch.tracebacks import user_frame
from tests.watch.test_diagnose import failure_of, rank

OLD = "torch.cuda.OutOfMemoryError: CUDA out of memory"
STEPS = tuple(f"step {number}" for number in range(KEPT_LINES - 1))


class TestErrors:
    def test_are_searched_only_in_the_lines_that_a_failure_contains(self) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=1, tail=(OLD, *STEPS)))
        assert (failure.kind, failure.error) == (FailureKind.USER_ERROR, "")
        assert failure.message == "rank 0 (pod node-0) exited with code 1; its last line: step 58"
        silent = failure_of(rank(0, 1.0, exit_code=1, tail=(OLD, *[""] * TAIL)))
        assert (silent.message, silent.advice) == ("rank 0 (pod node-0) exited with code 1.", NO_OUTPUT_ADVICE)

    def test_of_other_ranks_are_searched_only_in_these_lines(self) -> None:
        error = "ValueError: bad"
        first = rank(0, 1.0, exit_code=1, error=error)
        failure = failure_of(first, rank(2, 1.1, exit_code=1, tail=(error, *STEPS), stopped=True))
        assert (failure.same_error, failure.aftermath) == ((), ("rank 2",))

    def test_of_a_pod_are_those_of_the_source_with_the_latest_lines(self) -> None:
        assert _with_error({"rank 0": (OLD, *STEPS), "rank 1": ("done",)}) == ("done",)
        assert _with_error({"rank 0": (*STEPS, OLD), "rank 1": ("done",)})[-1] == OLD


class TestOfTwoObservations:
    def tail(self, old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
        (found,) = merge([rank(0, 1.0, exit_code=1, tail=old), rank(0, 1.0, exit_code=1, tail=new)])
        return found.tail

    def test_the_longer_lines_are_used_if_they_contain_the_end_of_the_shorter(self) -> None:
        log = ("step 1", "step 2", OLD, "bye")
        for order in ((log, log[1:3]), (log[1:3], log)):
            assert self.tail(*order) == log

    def test_the_later_lines_are_used_otherwise(self) -> None:
        assert self.tail(STEPS, ("step 99", OLD)) == ("step 99", OLD)
        assert self.tail(STEPS, ()) == self.tail((), STEPS) == STEPS


def test_the_frame_of_a_crash_is_not_from_a_stack_that_was_printed_before() -> None:
    error = "Fatal Python error: Aborted"
    before, *stack = (f'  File "train.py", line {line} in step' for line in range(3, KEPT_LINES))
    failure = failure_of(rank(0, 1.0, exit_code=134, error=error, tail=(before, error, *stack)))
    assert failure.error == f'{error}: File "train.py", line 4 in step'


def test_a_pod_that_was_stopped_is_aftermath_although_one_of_its_ranks_had_succeeded() -> None:
    done = rank(2, 1.0, exit_code=0, succeeded=True)
    stop = Observation("node 1", 3.0, pod=done.pod, signal=SIGTERM, stopped=True)
    failure = failure_of(done, rank(0, 2.0, exit_code=1), stop)
    assert failure.aftermath == ("node 1",)
    other = rank(3, 3.0, signal=SIGTERM, stopped=True)
    assert failure_of(done, rank(0, 2.0, exit_code=1), other, stop).aftermath == ("rank 3",)


def test_an_error_of_the_generated_program_has_no_frame_of_the_user(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(program_text("def fit(x): ...\n", "fit"))
    environment = {**os.environ, "RANK": "0", "STEPSET_RESULT_FILE": str(tmp_path / "result")}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60)
    *_, error = lines = done.stderr.splitlines()
    assert error.startswith("TypeError: fit() missing 1 required positional argument")
    assert user_frame(error, lines) == ""
