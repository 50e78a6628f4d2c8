"""Events: `[stepset] {json}` lines. Functions that write them, and the agent's record of those that ranks write."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import AgentError
from stepset.agent.lines import PartJoiner


def now() -> float:
    """Returns the seconds since the epoch, as events contain them."""
    return round(time.time(), 3)


def short_event(name: str, **fields: object) -> bytes:
    """Returns an event whose values are numbers; unlike `long_event` it does not import json."""
    values = ", ".join(f'"{key}": {value}' for key, value in fields.items())
    return f'[stepset] {{"event": "{name}", {values}}}\n'.encode()


def long_event(name: str, fields: Mapping[str, Any], mark: bytes = b"[stepset]") -> bytes:
    """Returns an event with fields of any kind.

    The mark `[stepset 3]` distinguishes an event of rank 3 that may be cut into parts from the events of other ranks
    between the parts.
    """
    import json

    return mark + b" " + json.dumps({"event": name, **fields}).encode() + b"\n"


def failure_of_agent(error: AgentError) -> dict[str, Any]:
    """Returns an error of the agent itself as a failure."""
    return {"kind": error.kind, "exit_code": error.code, "error": str(error), "at": now()}


def fitted(failure: dict[str, Any], limit: int, form: str = "%s") -> bytes:
    """Returns a failure as JSON in at most `limit` bytes: drops lines of its tail first, then cuts its error.

    `form` is the text around the JSON, with `%s` in its place.
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
    """The state of the ranks that a launcher started, as their `rank` processes report it.

    `running` maps each running rank to the pid of its `rank` process, `seen` contains every rank that started here,
    `result` is the size and the content of rank 0's result.

    Args:
        failures: the pod's failures; cleared when the launcher starts a new attempt.
        on_failure: called with each new failure.
        put: prints lines.
    """

    def __init__(
        self,
        config: Config,
        failures: list[dict[str, Any]],
        on_failure: Callable[[dict[str, Any]], None],
        put: Callable[[bytes], None],
    ) -> None:
        self.running: dict[int, int] = {}
        self.seen: set[int] = set()
        self.result: tuple[int, bytes] | None = None
        self.joiner = PartJoiner(self._on_event)
        self._config = config
        self._failures = failures
        self._on_failure = on_failure
        self._put = put
        self._attempt: set[int] = set()  # local ranks that the launcher has started in the current attempt

    def _on_event(self, text: bytes) -> bytes:
        """Records an event; returns the line to print, b"" for none."""
        import json

        try:
            event = json.loads(text)
            printed = self._record(event["event"], event)
        except (ValueError, KeyError, TypeError, AttributeError):
            printed = True  # not written by an agent: printed as it is
        return b"[stepset] %s\n" % text if printed else b""

    def _record(self, name: str, event: dict[str, Any]) -> bool:
        """Records an event; returns whether to print it."""
        if name == "started":
            self._record_start(event)
        elif name == "exited":
            self.running.pop(event["rank"], None)
        elif name == "result":
            self.result = event["size"], event["text"].encode("utf-8", "surrogateescape")
            return False
        elif name == "failed":
            failure = {key: value for key, value in event.items() if key not in ("event", "reported")}
            known = any((f.get("rank"), f["at"]) == (failure["rank"], failure["at"]) for f in self._failures)
            if self._config.launcher and not known:
                self._on_failure(failure)
            return not event.get("reported")  # the agent in the rank's own pod prints it
        return True

    def _record_start(self, event: dict[str, Any]) -> None:
        rank, local = event["rank"], event["local_rank"]
        self._put(self.joiner.finish(b"rank %d" % rank))
        self.running[rank] = event["wrapper"]
        self.seen.add(rank)
        if local in self._attempt and self._config.launcher_restarts:
            # A new attempt. Global ranks do not identify it: a node that returns may get other ranks.
            self._attempt.clear()
            self._failures.clear()
        self._attempt.add(local)
