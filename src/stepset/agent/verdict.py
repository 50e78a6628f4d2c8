"""The verdict on a pod: its exit code, rank 0's result, and the termination message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import EXIT_RESULT, MESSAGE_LIMIT, OWN_CODES, AgentError
from stepset.agent.events import RankEvents, fitted
from stepset.agent.process import exit_code


def report_failure(config: Config, failures: list[dict[str, Any]], launcher_code: int) -> int:
    """Writes the first of one or more failures to the termination log; returns the pod's exit code.

    `launcher_code` is the exit code of a launcher that ended by itself; 0 if the launcher succeeded or was stopped.
    """
    first = min(failures, key=lambda failure: float(failure["at"]))
    write_termination_log(config, fitted(first, MESSAGE_LIMIT, '{"stepset": {"failed": %s}}'))
    if first.get("kind") and first.get("exit_code") in OWN_CODES:
        return int(first["exit_code"])
    return launcher_code or exit_code(first)


def read_result(config: Config, env: Mapping[str, str], ranks: RankEvents) -> bytes | None:
    """Returns the result of a rank 0 that ran in this pod, or in another pod that reported it; None if there is none.

    Raises:
        AgentError: the result is too large, or not JSON.
    """
    import json

    path, limit = env.get("STEPSET_RESULT_FILE", ""), config.result_limit
    if ranks.result:
        size, data = ranks.result
    elif os.path.isfile(path) and (0 in ranks.seen or not ranks.seen):
        with open(path, "rb") as file:
            data = file.read(limit)
            size = os.fstat(file.fileno()).st_size
    else:
        return None
    if size > limit:
        advice = "save it to storage and return its URI"
        raise AgentError(EXIT_RESULT, "Rejected", f"the result is {size} bytes, the limit is {limit}; {advice}")
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        advice = "write it with json.dump to the file that STEPSET_RESULT_FILE names"
        raise AgentError(EXIT_RESULT, "Rejected", f"the result is not JSON ({error}); {advice}") from error
    return data


def write_termination_log(config: Config, message: bytes) -> None:
    """Writes the container's termination message, where there is a file for it."""
    path = config.termination_log or "/dev/termination-log"
    if not config.termination_log and not os.path.exists(path):
        return
    try:
        with open(path, "wb") as file:
            file.write(message)
    except OSError as error:
        os.write(2, f"stepset: cannot write {path}: {error.strerror}\n".encode())
