"""What a user of an interface sees of a run, in one form for all interfaces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.errors import ExitCode


@dataclass(frozen=True)
class Outcome:
    """How the wait for a run ended.

    Args:
        phase: the run's last phase; empty where the wait ended with an error and the run went on.
        failure: the kind of the run's failure; empty without one.
        result: what rank 0 wrote.
        exit_code: what a process of the interface exits with; for a trigger, what its task's exception stands for.
        error: why the wait ended before the run; empty where it did not.
    """

    phase: str
    failure: str = ""
    result: Any = None
    exit_code: int = 0
    error: str = ""


def of_status(status: Mapping[str, Any], exit_code: int) -> Outcome:
    """The outcome that a final status tells.

    Args:
        status: as RunStatus.to_dict has it.
        exit_code: of the interface.
    """
    failure = status.get("failure") or {}
    return Outcome(str(status["phase"]), str(failure.get("kind", "")), status.get("result"), exit_code)


def of_error(error: str, exit_code: int = int(ExitCode.INFRASTRUCTURE)) -> Outcome:
    """The outcome of a wait that ended before the run."""
    return Outcome("", error=error, exit_code=exit_code)


class View:
    """What an interface has shown until now; its reader's threads fill it in, a test waits for it.

    Attributes:
        lines: source -> its lines, in the order in which they were shown.
        said: everything else that the interface told a user, each sentence as often as it was told.
        noise: what is none of these, for the message of a failed assertion.
        outcome: how it ended, once it has.
        memory_mb: the most memory that its process had.
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.said: list[str] = []
        self.noise: list[str] = []
        self.outcome: Outcome | None = None
        self.memory_mb = 0.0
        self._changed = threading.Condition()

    def line(self, source: str, text: str) -> None:
        """A rank printed a line."""
        with self._changed:
            self.lines.setdefault(source, []).append(text)
            self._changed.notify_all()

    def say(self, sentence: str) -> None:
        """The interface told a user something."""
        with self._changed:
            self.said.append(sentence)
            self._changed.notify_all()

    def end(self, outcome: Outcome) -> None:
        """The interface has ended."""
        with self._changed:
            self.outcome = outcome
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float, *, to_end: bool = False) -> None:
        """Waits until something that was shown makes a condition true.

        Args:
            condition: is asked whenever something is shown.
            what: for the message.
            seconds: how long at most.
            to_end: the interface may end meanwhile.

        Raises:
            AssertionError: it did not become true, or the interface ended before.
        """
        end = time.monotonic() + seconds
        with self._changed:
            while not condition():
                if self.outcome is not None and not to_end:
                    raise AssertionError(f"the wait for the run ended before {what}: {self.outcome}\n{self.shown()}")
                if (left := end - time.monotonic()) <= 0:
                    raise AssertionError(f"waited {seconds:.0f} s for {what}\n{self.shown()}")
                self._changed.wait(min(left, 0.5))

    def shown(self) -> str:
        """Everything, shortened, for the message of a failed assertion."""
        lines = [f"{source}: {len(texts)} lines, the last: {texts[-3:]}" for source, texts in self.lines.items()]
        return "\n".join([str(self.outcome), f"{self.memory_mb:.0f} MB", *lines, *self.said[-40:], *self.noise[-40:]])[
            :8000
        ]


def numbered(lines: list[str], starts: int = 1, lost: int = 0) -> str:
    """What is wrong with the lines `line 0`, `line 1`, ... of one rank; empty where nothing is.

    Args:
        lines: all that it printed.
        starts: how often it began to count.
        lost: of how many of these counts the end may be missing.
    """
    numbers = [int(each[5:]) for each in lines if each.startswith("line ")]
    begins = [at for at, number in enumerate(numbers) if number == 0]
    if not (starts - lost <= len(begins) <= starts) or not numbers:
        return f"counts {len(begins)} times from 0 instead of {starts}: {numbers[:5]}...{numbers[-5:]}"
    for at, number in enumerate(numbers):
        expected = 0 if at in begins else numbers[at - 1] + 1
        if number != expected:
            return f"{numbers[max(0, at - 3) : at + 3]} where {expected} should be"
    return ""


def counted_last(lines: list[str]) -> int:
    """How many lines `line 0`, `line 1`, ... a rank printed since its last start."""
    numbers = [int(each[5:]) for each in lines if each.startswith("line ")]
    return numbers[-1] + 1 if numbers else 0
