"""Parses the termination message of a container.

The agent writes its verdict or the result of rank 0 to this message. If the agent writes nothing, the kubelet uses the
last lines of the container's log as the message (terminationMessagePolicy: FallbackToLogsOnError).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.unstructured import LARGEST
from stepset.watch.agent_events import read_events
from stepset.watch.bounded_json import parse_json
from stepset.watch.diagnose import KEPT_LINES
from stepset.watch.lines import Joiner, Splitter
from stepset.watch.redacted_lines import RedactedLines


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """The content of a termination message. `events` and `tails` are set if the message consists of log lines."""

    failed: Mapping[str, Any] | None = None  # the agent's verdict on a failure (docs/design/agent.md)
    events: tuple[Mapping[str, Any], ...] = ()  # the agent's events
    tails: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # source ("" if unknown) -> its last lines
    result: tuple[Any, ...] = ()  # the result of rank 0, in a tuple because the result may be None


NO_MESSAGE = TerminationMessage()


def read_termination_message(message: str, exit_code: int, agent: bool) -> TerminationMessage:
    """Parses a termination message. If `agent` is False, the message contains neither a verdict nor a result."""
    if not message:
        return NO_MESSAGE
    if agent:
        try:
            data = parse_json(message)
        except ValueError:
            return _end_of_log(message)
        if exit_code == 0:
            return TerminationMessage(result=(data,))
        report = data.get("stepset") if isinstance(data, dict) else None
        if isinstance(report, dict) and isinstance(report.get("failed"), dict):
            return TerminationMessage(failed=report["failed"])
        if isinstance(report, dict) and "withheld" in report:
            return NO_MESSAGE  # the agent was killed, or stopped its pod
    return _end_of_log(message)


def _end_of_log(message: str) -> TerminationMessage:
    splitter = Splitter("")
    tails: dict[str, list[str]] = {}
    events: list[Mapping[str, Any]] = []
    redacted = RedactedLines()
    data = message.encode("utf-8", "replace")
    for batch in (splitter.feed(data), splitter.finish()):
        read = list(read_events(batch.events, LARGEST))
        events += read
        redacted.see(read)
        for source, text in Joiner().join(batch.lines):
            tails.setdefault(source, []).append(redacted.shown(source, text))
    last_lines = {source: tuple(lines[-KEPT_LINES:]) for source, lines in tails.items()}
    return TerminationMessage(events=tuple(events), tails=last_lines)
