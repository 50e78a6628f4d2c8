"""A task whose run something happens to while it waits, and everything a user can see of how that ends.

What happens is told by what the task's log has said so far and by a directory that test and ranks share: nothing here
depends on how long something takes.
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
from tests.waiting import STARTS_WITHIN, until

PHASES = "STEPSET_TEST_PHASES"
"""Names the file that `note_phase` writes to."""


def note_phase(status: Mapping[str, Any]) -> None:
    """A callback of the operator's: says in which phase the run is."""
    with Path(os.environ[PHASES]).open("a") as file:
        file.write(f"{status['phase']} {status.get('reason') or ''}".strip() + "\n")


@dataclass(frozen=True)
class Scene:
    """What a test has.

    Args:
        tasks: text of tasks, and the account.
        stage: what test and ranks share.
        phases: where `note_phase` writes.
        outlet: the name of an asset that the task's outlet is.
        made: the JobSets that were ever made; None where nobody watches.
    """

    tasks: Tasks
    stage: Stage
    phases: Path
    outlet: str
    made: Created | None = None

    @contextmanager
    def watched(self, told: Path) -> Iterator[Scene]:
        """The same, with somebody who watches what is made.

        Args:
            told: a file for it.
        """
        with created(self.tasks.runs.cluster, self.tasks.runs.namespace, told) as made:
            yield replace(self, made=made)

    def names(self) -> list[str]:
        """The JobSets that were ever made, the oldest first."""
        assert self.made is not None
        return self.made.names()

    def train(self, *lines: str, more: str = "", **fields: Any) -> str:
        """A task whose two ranks run some lines of Python, as Stage.job says; its objects go when it is over.

        Args:
            lines: of the program.
            more: parameters as they are to be in the DAG file.
            fields: plain parameters.
        """
        job = self.stage.job("print('line', 0)", "count = 1", *lines)
        template = {"spec": job.pop("pod_template")}
        given = {"on_finish_action": "delete", "callbacks": f"{__name__}.note_phase", "poll_interval": 1, **fields}
        text = f"outlets=[Asset({self.outlet!r})], {more}"
        return self.tasks.train(text, **{"script": None, "pod_template": template, **job, **given})

    def wait_for(self, phase: str) -> None:
        """Until the task has been told of a phase, such as `Pending Queued`."""

        def told() -> bool:
            return self.phases.exists() and phase in self.phases.read_text().splitlines()

        assert until(told, STARTS_WITHIN), f"the task is not told of {phase}"

    def wait_for_word(self, word: str) -> None:
        """Until a rank has said a word."""
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
        **told: Any,
    ) -> None:
        """Everything that a user can see of a task that is over.

        Args:
            run: of the DAG.
            state: of the task.
            jobsets: ever made.
            tries: of the task.
            error: a pattern of its exception's first line.
            result: its XCom, which the events of its outlet carry.
            attempts: how often its ranks began to count their lines.
            told: what the events carry besides.
        """
        assert (run.task_state("train"), run.tries("train")) == (state, tries), run.explained()
        names = self.names()
        assert [name.rpartition("-")[2] for name in names] == [str(number + 1) for number in range(jobsets)], names
        if error:
            assert re.search(error, str(run.error).splitlines()[0]), run.explained()
        assert run.xcom("train") == result
        events = asset_event_extras(self.outlet)
        assert events == ([] if result is None else [{"run": names[-1], **result, **told}])
        counted = [int(line.split()[-1]) for line in run.lines if line.startswith("[rank 0] line ")]
        begun = [at for at, number in enumerate(counted) if number == 0]
        assert len(begun) == attempts, counted
        for begin, end in pairwise([*begun, len(counted)]):
            assert counted[begin:end] == list(range(end - begin)), counted
        assert not [line for line in run.lines if line.startswith("[rank 1]")]
        self.tasks.runs.wait_nothing_left()


@contextmanager
def meanwhile(*steps: Callable[[], Any]) -> Iterator[None]:
    """Takes steps while a DAG runs; what goes wrong there fails the test, at once: the DAG may wait for a step."""
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
