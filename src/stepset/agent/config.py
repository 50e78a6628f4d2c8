"""Reads CONFIG.json, which states what the pods of one group do. docs/design/agent.md describes the keys."""

from __future__ import annotations

import os
from typing import Any

from stepset.agent.errors import MESSAGE_LIMIT, setup_error
from stepset.agent.redact import parse_json

_ADVICE = "agent and config must come from the same version of stepset"


class Config:
    """A parsed CONFIG.json. `written` is when the pod received the file, in ns since the epoch, or 0 if unknown."""

    def __init__(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise setup_error("agent's config: must be a JSON object")
        if data.get("version") != 1:
            raise setup_error(f"agent's config: version is {data.get('version')!r}, not 1; {_ADVICE}")
        self.written = 0
        self._data = {key: value for key, value in data.items() if key != "version" and value is not None}
        self.group: str = self._take("group", str)
        self.dir: str = os.path.abspath(self._take("dir", str))
        self.source: str = self._take("source", str, self.group + "-{node_rank}")
        self.in_world: bool = self._take("in_world", bool, True)
        self.peers: list[dict[str, Any]] = self._take("peers", list, [])
        self.peer_timeout: float = self._take("peer_timeout", (int, float), 600)
        self.attempt: int = self._take("attempt", int, 0)
        self.processes: int = self._take("processes", int, 0)
        self.process_env: dict[str, str] = self._take("process_env", dict, {})
        self.procs_per_node: int = self._take("procs_per_node", int, self.processes or 1)
        self.launcher: list[str] = self._take("launcher", list, [])
        self.program: list[str] = self._take("program", list, [])
        self.command_len: int = self._take("command_len", int, 0)
        self.mpi: bool = self._take("mpi", bool, False)
        self.world_size: int = self._take("world_size", int, 0)
        self.launcher_restarts: bool = self._take("launcher_restarts", bool, False)
        self.counts_ranks: bool = self._take("counts_ranks", bool, False)
        self.stdin: int = self._take("stdin", int, 0)
        self.serve: str = self._take("serve", str, "")
        self.files: list[dict[str, str]] = self._take("files", list, [])
        self.code_archive: str = self._take("code_archive", str, "")
        self.code_dir: str = self._take("code_dir", str, "")
        self.work_dir: str = self._take("work_dir", str, "")
        self.termination_log: str = self._take("termination_log", str, "")
        self.grace: float = self._take("grace", (int, float), 30)
        self.hang_action = ""
        self.hang_after, self.hang_first = self._take_hang()
        self.secrets: list[str] = self._take("secrets", list, [])
        self.secret_files: list[str] = self._take("secret_files", list, [])
        self.result_limit: int = self._take("result_limit", int, MESSAGE_LIMIT)
        if self._data:
            raise setup_error(f"agent's config: {min(self._data)}: unknown key; {_ADVICE}")

    def _take(self, key: str, kind: Any, default: Any = None) -> Any:
        value = self._data.pop(key, default)
        if value is None:
            raise setup_error(f"agent's config: {key} is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise setup_error(f"agent's config: {key}: {value!r} is of the wrong type")
        return value

    def _take_hang(self) -> tuple[float, float]:
        """Returns the numbers of seconds `after` and `first` of `hang`. Both are 0 if the agent looks for no hang."""
        hang: dict[str, Any] = self._take("hang", dict, {})
        if not hang:
            return 0.0, 0.0
        times: list[Any] = [hang.get("after"), hang.get("first")]
        if hang.keys() - {"action"} != {"after", "first"} or not all(
            type(each) in (int, float) and 0 < each < 1e10 for each in times
        ):
            raise setup_error(f"agent's config: hang: {hang!r} must consist of two times, after and first")
        self.hang_action = hang.get("action", "")
        if self.hang_action not in ("", "restart", "fail"):
            raise setup_error(f"agent's config: hang: the action {self.hang_action!r} is unknown; {_ADVICE}")
        return float(times[0]), float(times[1])


def read_config(path: str) -> Config:
    """Reads the config at `path`.

    Raises:
        AgentError: the file cannot be read, is not JSON, or is nested too deeply. Also raised if a key is missing, is
            unknown, or has a value of the wrong type.
    """
    try:
        with open(path, "rb") as file:
            config = Config(parse_json(file.read()))
            config.written = os.fstat(file.fileno()).st_mtime_ns
            return config
    except OSError as error:
        raise setup_error(f"agent's config {path}: {error.strerror}") from error
    except ValueError as error:
        raise setup_error(f"agent's config {path}: not JSON: {error}") from error
