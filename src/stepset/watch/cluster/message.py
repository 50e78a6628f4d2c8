"""A container's termination message: the agent's verdict, rank 0's result, or the last lines of the log.

Without a verdict the kubelet writes the end of the container's log there (terminationMessagePolicy:
FallbackToLogsOnError).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.watch.diagnose import TAIL
from stepset.watch.lines import Joiner, Splitter, log_lines


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """The content of a termination message. `events` and `tails` are set if the message is the end of a log."""

    failed: Mapping[str, Any] | None = None  # the agent's verdict on a failure (docs/design/agent.md)
    events: tuple[Mapping[str, Any], ...] = ()  # the agent's events
    tails: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # source, if known -> its last lines
    result: tuple[Any, ...] = ()  # rank 0's result, in a tuple because it may be None


NO_MESSAGE = TerminationMessage()


def read_termination_message(message: str, exit_code: int, agent: bool) -> TerminationMessage:
    """Parses a termination message; without the agent it contains neither a verdict nor a result."""
    if not message:
        return NO_MESSAGE
    if agent:
        try:
            data = json.loads(message)
        except (ValueError, RecursionError):
            return _end_of_log(message)
        if exit_code == 0:
            return TerminationMessage(result=(data,))
        failed = data.get("stepset") if isinstance(data, dict) else None
        failed = failed.get("failed") if isinstance(failed, dict) else None
        if isinstance(failed, dict):
            return TerminationMessage(failed=failed)
    return _end_of_log(message)


def _end_of_log(message: str) -> TerminationMessage:
    splitter = Splitter("")
    tails: dict[str, list[str]] = {}
    events = []
    data = message.encode("utf-8", "replace")
    for batch in (splitter.feed(data), splitter.finish()):
        events += batch.events
        for line in log_lines(Joiner().join(batch.lines)):
            tails.setdefault(line.source, []).append(line.text)
    last_lines = {source: tuple(lines[-TAIL:]) for source, lines in tails.items()}
    return TerminationMessage(events=tuple(events), tails=last_lines)
