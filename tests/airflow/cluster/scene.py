"""Steps of a test while a task waits for its run, and a check of all that a user can observe afterwards.

The steps wait for lines of the task's log and for files in a directory that test and ranks share: no test depends on
timing.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.harness import DagRun, asset_event_extras
from tests.airflow.stack.created import Created, created
from tests.cluster.stage import Stage
from tests.violations import at_most
from tests.waiting import STARTS_WITHIN, until

PHASES = "STEPSET_TEST_PHASES"
"""Names the file that `note_phase` writes to."""


def note_phase(status: Mapping[str, Any]) -> None:
    """An operator callback: appends the run's phase to a file."""
    with Path(os.environ[PHASES]).open("a") as file:
        file.write(f"{status['phase']} {status.get('reason') or ''}".strip() + "\n")


@dataclass(frozen=True)
class Scene:
    """The environment of a test.

    Args:
        tasks: source text of tasks, and the account.
        stage: the directory that test and ranks share.
        phases: the file to which `note_phase` writes.
        outlet: the name of the asset in the task's outlets.
        made: the record of created JobSets; None: there is no watch.
    """

    tasks: Tasks
    stage: Stage
    phases: Path
    outlet: str
    made: Created | None = None

    @contextmanager
    def watched(self, output: Path) -> Iterator[Scene]:
        """This scene with a watch of created JobSets.

        Args:
            output: the file for the watch's output.
        """
        with created(self.tasks.runs.cluster, self.tasks.runs.namespace, output) as made:
            yield replace(self, made=made)

    def names(self) -> list[str]:
        """The names of all JobSets that were created, oldest first."""
        assert self.made is not None
        return self.made.names()

    def train(self, *lines: str, more: str = "", **fields: Any) -> str:
        """A task whose two ranks run lines of Python, see Stage.job; its objects are deleted when it ends.

        Args:
            lines: the program.
            more: parameters as Python source.
            fields: plain parameters.
        """
        job = self.stage.job("print('line 0')", "count = 1", *lines)
        template = {"spec": job.pop("pod_template")}
        given = {"on_finish_action": "delete", "callbacks": f"{__name__}.note_phase", "poll_interval": 1, **fields}
        text = f"outlets=[Asset({self.outlet!r})], {more}"
        return self.tasks.train(text, **{"script": None, "pod_template": template, **job, **given})

    def wait_for(self, phase: str) -> None:
        """Waits until the task's callback has received a phase, such as `Pending Queued`."""

        def received() -> bool:
            return self.phases.exists() and phase in self.phases.read_text().splitlines()

        assert until(received, STARTS_WITHIN), f"the task's callback did not receive {phase}"

    def wait_for_word(self, word: str) -> None:
        """Waits until a rank has signalled `word`."""
        assert until(lambda: self.stage.has(word), STARTS_WITHIN), f"no rank says {word}"

    def check(
        self,
        run: DagRun,
        *,
        state: str = "success",
        jobsets: int = 1,
        tries: int = 1,
        error: str = "",
        result: Mapping[str, Any] | None = None,
        attempts: int = 1,
        **extra: Any,
    ) -> None:
        """Checks all that a user can observe of an ended task.

        Args:
            run: the DAG run.
            state: the task's state.
            jobsets: the number of JobSets that were created.
            tries: the number of the task's tries.
            error: a pattern for the first line of its exception.
            result: its XCom, which the events of its outlet contain.
            attempts: how often its ranks started to count their lines.
            extra: other fields of the events.
        """
        assert (run.task_state("train"), run.tries("train")) == (state, tries), run.explained()
        names = at_most(jobsets, self.names())
        assert [name.rpartition("-")[2] for name in names] == [str(number + 1) for number in range(jobsets)], names
        if error:
            assert re.search(error, str(run.error).splitlines()[0]), run.explained()
        assert run.xcom("train") == result
        events = asset_event_extras(self.outlet)
        assert events == ([] if result is None else [{"run": names[-1], **result, **extra}])
        counted = [int(line.split()[-1]) for line in run.lines if line.startswith("[rank 0] line ")]
        starts = [at for at, number in enumerate(counted) if number == 0]
        assert len(starts) == attempts, counted
        for begin, end in pairwise([*starts, len(counted)]):
            assert counted[begin:end] == list(range(end - begin)), counted
        assert not [line for line in run.lines if line.startswith("[rank 1]")]
        self.tasks.runs.wait_nothing_left()


@contextmanager
def meanwhile(*steps: Callable[[], Any]) -> Iterator[None]:
    """Runs steps while a DAG runs; an error in a step fails the test at once, because the DAG may wait for the step."""
    wrong: list[BaseException] = []
    running, turn = True, threading.Lock()
    test = threading.get_ident()

    def act() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:  # noqa: BLE001  # raised below, in the thread of the test
            wrong.append(error)
            with turn:
                if running:
                    signal.pthread_kill(test, signal.SIGINT)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        yield
        with turn:
            running = False
    except BaseException:
        if wrong:
            raise wrong[0] from None
        raise
    thread.join(STARTS_WITHIN)
    assert not thread.is_alive()
    if wrong:
        raise wrong[0]
