"""CONFIG.json is read strictly: agent and config are of the same version of stepset."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.config import Config, read_config
from stepset.agent.errors import EXIT_SETUP, AgentError

CONFIG = {"version": 1, "group": "node", "dir": "/pod"}


def test_all_keys_but_group_and_directory_have_defaults(config: Callable[..., Config]) -> None:
    made = config()
    assert (made.source, made.in_world, made.grace, made.result_limit) == ("node-{node_rank}", True, 30, 4096)
    assert (made.peers, made.launcher, made.processes, made.procs_per_node) == ([], [], 0, 1)


def test_ranks_count_by_the_processes_of_a_node_unless_the_config_sets_another(config: Callable[..., Config]) -> None:
    assert config(processes=4).procs_per_node == 4
    assert config(processes=4, procs_per_node=8).procs_per_node == 8


def test_null_is_a_missing_key(config: Callable[..., Config]) -> None:
    assert config(grace=None).grace == 30


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be a JSON object"),
        ({}, "version is None, not 1"),
        ({**CONFIG, "version": 2}, "version is 2, not 1"),
        ({**CONFIG, "dir": None}, "dir is missing"),
        ({**CONFIG, "grace": "1"}, "grace: '1' is of the wrong type"),
        ({**CONFIG, "attempt": True}, "attempt: True is of the wrong type"),
        ({**CONFIG, "mpi": 1}, "mpi: 1 is of the wrong type"),
        ({**CONFIG, "hang": False}, "hang: False is of the wrong type"),
        ({**CONFIG, "hang": {"after": 5}}, "hang: {'after': 5} must consist of two times, after and first"),
        ({**CONFIG, "hang": {"after": 5, "first": 9, "action": "stop"}}, "hang: the action 'stop' is unknown"),
        *(
            ({**CONFIG, "hang": times}, f"hang: {times!r} must consist of two times, after and first")
            for times in (
                {"after": 5, "first": "9"},
                {"after": 5, "first": True},
                {"after": 0, "first": 9},
                {"after": 5, "first": float("nan")},
                {"after": 5, "first": 9, "later": 10},
            )
        ),
        ({**CONFIG, "later": 1, "earlier": 1}, "earlier: unknown key"),
    ],
)
def test_an_error_names_the_key(data: Any, message: str) -> None:
    with pytest.raises(AgentError, match=re.escape(f"agent's config: {message}")) as caught:
        Config(data)
    assert (caught.value.code, caught.value.kind) == (EXIT_SETUP, "Infrastructure")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"none\.json: No such file"):
        read_config(str(tmp_path / "none.json"))
    for content in (b"{", b"\xff", b"[" * 100_000, b"[" * 101 + b"]" * 101):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(AgentError, match=r"bad\.json: not JSON"):
            read_config(str(tmp_path / "bad.json"))
