"""Creates the reports of a pod: the events and the termination message. An event is a line `[stepset] {json}`.

`RankEvents` checks and records the events that ranks write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import EXIT_RESULT, MESSAGE_LIMIT, OWN_CODES, AgentError
from stepset.agent.loop import read_regular, reason_of, write_file
from stepset.agent.process import exit_code
from stepset.agent.redact import Redactor, parse_json
from stepset.agent.setup import record_rank

WITHHELD = b'{"stepset": {"withheld": "the end of the log may contain values of Secrets"}}'
"""The termination message while a pod with Secrets runs. If the message were empty, the kubelet would store the last
lines of the log, which may contain values of Secrets."""

_WRITE_JSON = "write it with json.dump to the file that STEPSET_RESULT_FILE names"
LARGEST = 2**63
_LARGEST_PID = 2**31 - 1  # pid_t of Linux
ERROR_LIMIT = 1000  # characters
_TAIL, _WIDTH = 20, 400  # the maximum number of lines, and of characters per line, that `last_lines` returns


def now() -> float:
    """Returns the current time in the form that events contain: seconds since the epoch."""
    return round(time.time(), 3)


def short_event(name: str, **fields: object) -> bytes:
    """Returns an event whose values are numbers. In contrast to `long_event`, this does not import json."""
    values = ", ".join(f'"{key}": {value}' for key, value in fields.items())
    return f'[stepset] {{"event": "{name}", {values}}}\n'.encode()


def long_event(name: str, fields: Mapping[str, Any], mark: bytes = b"[stepset]") -> bytes:
    """Returns an event with fields of any kind.

    An event that may be cut into parts has a mark with its rank, such as `[stepset 3]`. The mark identifies the
    parts, because events of other ranks may be printed between them.
    """
    import json

    return mark + b" " + json.dumps({"event": name, **fields}).encode() + b"\n"


def failure_of_agent(error: AgentError) -> dict[str, Any]:
    """Returns an error of the agent itself as a failure."""
    return {"kind": error.kind, "exit_code": error.code, "error": str(error), "at": now()}


def fitted(failure: dict[str, Any], limit: int, form: str = "%s") -> bytes:
    """Returns a failure as JSON in at most `limit` bytes. If necessary, removes lines of its tail, then cuts its error.

    `form` is a format string in which `%s` stands for the JSON.
    """
    import json

    while True:
        message = (form % json.dumps(failure, ensure_ascii=False)).encode("utf-8", "replace")
        if len(message) <= limit:
            return message
        if failure.get("tail"):
            failure = {**failure, "tail": failure["tail"][1:]}
        else:
            failure = {**failure, "tail": [], "error": failure["error"][: len(failure["error"]) // 2]}


class RankEvents:
    """The state of the ranks that a launcher started. The `rank` process of each rank reports the state.

    `running` contains the pid of each running rank's `rank` process. `seen` contains the ranks that started in this
    pod. `result` is the size and content of rank 0's result. `result_problem` states why the result could not be read.

    Args:
        failures: the failures of the pod. They are removed when the launcher starts a new attempt.
        on_failure: a function that is called with each new failure.
        on_start: a function that is called with each rank that starts.
    """

    def __init__(
        self,
        config: Config,
        failures: list[dict[str, Any]],
        on_failure: Callable[[dict[str, Any]], None],
        on_start: Callable[[int], None],
    ) -> None:
        self.running: dict[int, int] = {}
        self.seen: set[int] = set()
        self.result: tuple[int, bytes] | None = None
        self.result_problem = ""
        self._config = config
        self._failures = failures
        self._on_failure = on_failure
        self._on_start = on_start
        self._attempt: set[int] = set()  # local ranks that the launcher has started in the current attempt

    def see(self, text: bytes) -> bytes:
        """Records an event and returns the line to print, or b"" if there is no line to print."""
        try:
            event = parse_json(text)
            printed = self._record(event["event"], event)
        except (ValueError, KeyError, TypeError, AttributeError):
            printed = True  # The line was not written by an agent. It is printed unchanged.
        return b"[stepset] %s\n" % text if printed else b""

    def _record(self, name: str, event: dict[str, Any]) -> bool:
        """Records an event and returns whether the event must be printed."""
        if name == "started":
            self._record_start(event)
        elif name == "exited":
            self.running.pop(number(event["rank"]), None)
        elif name == "result":
            if problem := event.get("problem"):
                self.result_problem = str(problem)[:ERROR_LIMIT]
            else:
                self.result = number(event["size"]), event["text"].encode("utf-8", "surrogateescape")
            return False
        elif name == "failed":
            failure = failure_in(event)
            known = any((f.get("rank"), f["at"]) == (failure["rank"], failure["at"]) for f in self._failures)
            if self._config.launcher and not known:
                self._on_failure(failure)
            return not event.get("reported")  # the agent in the rank's own pod prints it
        return True

    def _record_start(self, event: dict[str, Any]) -> None:
        rank, local, wrapper = number(event["rank"]), number(event["local_rank"]), pid(event["wrapper"])
        self._on_start(rank)
        self.running[rank] = wrapper
        self.seen.add(rank)
        if local in self._attempt and self._config.launcher_restarts:
            # A new attempt begins when a local rank starts again. If a node has rejoined, the global rank may differ.
            self._attempt.clear()
            self._failures.clear()
        self._attempt.add(local)
        if self._config.hang_after:
            record_rank(self._config, rank, pid(event["pid"]))


def number(value: Any, most: int = LARGEST) -> int:
    """Returns `value` if it is a whole number from 0 to `most`. Otherwise, raises TypeError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    raise TypeError(f"{value!r:.50} is not a whole number")


def pid(value: Any) -> int:
    """Returns `value` if it is a pid. Otherwise, raises TypeError. 0 is invalid, as it means the agent's own group."""
    return number(value or None, _LARGEST_PID)


def failure_in(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the failure that a `failed` event contains. Cuts long texts, and keeps only the end of the tail.

    Raises:
        KeyError: the rank or the time is missing.
        TypeError: a value is of the wrong type, or a number is too large.
    """
    at = event["at"]
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < LARGEST:
        raise TypeError(f"at: {at!r:.50} is not a time")
    failure: dict[str, Any] = {"rank": number(event["rank"])}
    if "kind" in event:
        failure["kind"] = _text(event["kind"], 40)
    for name in ("exit_code", "signal"):
        if name in event:
            failure[name] = number(event[name], 255)
    failure["error"] = _text(event.get("error", ""), ERROR_LIMIT)
    if "tail" in event:
        if not isinstance(event["tail"], list):
            raise TypeError("tail is not a list")
        failure["tail"] = [_text(line, _WIDTH) for line in event["tail"][-_TAIL:]]
    failure["at"] = at
    return failure


def _text(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return value[:limit]
    raise TypeError(f"{value!r:.50} is not text")


def report_failure(config: Config, failures: list[dict[str, Any]], launcher_code: int) -> int:
    """Writes the earliest failure to the termination log, and returns the exit code of the pod.

    `launcher_code` is the exit code of a launcher that failed. It is 0 if the launcher succeeded or was stopped.
    """
    first = min(failures, key=lambda failure: float(failure["at"]))
    write_termination_log(config, fitted(first, MESSAGE_LIMIT, '{"stepset": {"failed": %s}}'))
    if first.get("kind") and first.get("exit_code") in OWN_CODES:
        return int(first["exit_code"])
    return launcher_code or exit_code(first)


def read_result(config: Config, env: Mapping[str, str], ranks: RankEvents, redactor: Redactor) -> bytes | None:
    """Returns the result of rank 0, or None if there is no result. Rank 0 may have run in another pod.

    `redactor` replaces the values of Secrets in the result.

    Raises:
        AgentError: the result is not a regular file, is too large, or is not JSON.
    """
    path, limit = env.get("STEPSET_RESULT_FILE", ""), config.result_limit
    if ranks.result:
        size, data = ranks.result
    elif ranks.result_problem:
        raise _rejected(f"the result cannot be read: {ranks.result_problem}; {_WRITE_JSON}")
    elif os.path.lexists(path) and (0 in ranks.seen or not ranks.seen):
        try:
            size, data = read_regular(path, limit)
        except OSError as error:
            raise _rejected(f"the result cannot be read: {reason_of(error)}; {_WRITE_JSON}") from error
    else:
        return None
    if size > limit:
        raise _rejected(
            f"the result is {size} bytes, the limit is {limit}; save it to storage, and use its path or URI as the"
            " result"
        )
    try:
        parse_json(data)
        return redactor.json(data)
    except ValueError as error:
        raise _rejected(f"the result is not JSON ({error}); {_WRITE_JSON}") from error


def _rejected(message: str) -> AgentError:
    return AgentError(EXIT_RESULT, "Rejected", f"the program succeeded, but {message}")


def write_termination_log(config: Config, message: bytes) -> None:
    """Writes the termination message of the container. Does nothing if there is no file for the message."""
    path = config.termination_log or "/dev/termination-log"
    if not config.termination_log and not os.path.exists(path):
        return
    try:
        write_file(path, message)  # The training code may have replaced the file with a pipe.
    except OSError as error:
        os.write(2, f"stepset: cannot write {path}: {error.strerror}\n".encode())
