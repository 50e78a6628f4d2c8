"""The output of an interface about a run, in one form for all interfaces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.exit_code import ExitCode


@dataclass(frozen=True)
class Outcome:
    """How the wait for a run ended.

    Args:
        phase: the run's last phase; empty if the wait ended with an error and the run continues.
        failure: the kind of the run's failure; empty without one.
        result: the result that rank 0 wrote.
        exit_code: the exit code of the interface's process; for a trigger, the one that matches its task's exception.
        error: why the wait ended before the run; empty if it did not.
    """

    phase: str
    failure: str = ""
    result: Any = None
    exit_code: int = 0
    error: str = ""


def of_status(status: Mapping[str, Any], exit_code: int) -> Outcome:
    """The outcome of a final status.

    Args:
        status: the result of RunStatus.to_dict.
        exit_code: the interface's exit code.
    """
    failure = status.get("failure") or {}
    return Outcome(str(status["phase"]), str(failure.get("kind", "")), status.get("result"), exit_code)


def of_error(error: str, exit_code: int = int(ExitCode.INFRASTRUCTURE)) -> Outcome:
    """The outcome of a wait that ended before the run."""
    return Outcome("", error=error, exit_code=exit_code)


class View:
    """The output of an interface until now; reader threads add to it, and a test waits for it.

    Attributes:
        lines: source -> its lines, in the order in which they were shown.
        messages: all other sentences for the user, in order and with repetitions.
        noise: other output, for the message of a failed assertion.
        outcome: the outcome, once the interface has ended.
        memory_mb: the maximum memory of its process.
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.messages: list[str] = []
        self.noise: list[str] = []
        self.outcome: Outcome | None = None
        self.memory_mb = 0.0
        self._changed = threading.Condition()

    def line(self, source: str, text: str) -> None:
        """Adds a line of a rank."""
        with self._changed:
            self.lines.setdefault(source, []).append(text)
            self._changed.notify_all()

    def message(self, sentence: str) -> None:
        """Adds a sentence for the user."""
        with self._changed:
            self.messages.append(sentence)
            self._changed.notify_all()

    def end(self, outcome: Outcome) -> None:
        """Sets the outcome."""
        with self._changed:
            self.outcome = outcome
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float, *, to_end: bool = False) -> None:
        """Waits until a condition holds.

        Args:
            condition: evaluated after each output.
            what: completes the message "waited for".
            seconds: the timeout.
            to_end: whether the interface may end before.

        Raises:
            AssertionError: the condition did not hold in time, or the interface ended before.
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
        """All output, shortened, for the message of a failed assertion."""
        lines = [f"{source}: {len(texts)} lines, the last: {texts[-3:]}" for source, texts in self.lines.items()]
        return "\n".join(
            [str(self.outcome), f"{self.memory_mb:.0f} MB", *lines, *self.messages[-40:], *self.noise[-40:]]
        )[:8000]


def numbered(lines: list[str], starts: int = 1, lost: int = 0) -> str:
    """Describes the first error in the lines `line 0`, `line 1`, ... of one rank; empty without error.

    Args:
        lines: all lines of the rank.
        starts: how often the rank counts from 0.
        lost: the number of these counts that may be missing.
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
    """The number of lines `line 0`, `line 1`, ... that a rank printed since its last start."""
    numbers = [int(each[5:]) for each in lines if each.startswith("line ")]
    return numbers[-1] + 1 if numbers else 0
