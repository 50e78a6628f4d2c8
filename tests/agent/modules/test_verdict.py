"""The verdict on a pod: its exit code, rank 0's result, the termination message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepset.agent.config import Config
from stepset.agent.errors import AgentError
from stepset.agent.events import read_result, report_failure, write_termination_log
from stepset.agent.lines import NO_SECRETS

LATE = {"rank": 1, "exit_code": 7, "error": "late", "at": 2.0}
EARLY = {"rank": 3, "signal": 6, "error": "early", "at": 1.0}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def ranks(*seen: int, result: tuple[int, bytes] | None = None) -> Any:
    return SimpleNamespace(seen=set(seen), result=result, result_problem="")


def test_the_first_failure_is_the_message(config: Callable[..., Config], log: Path) -> None:
    made = config(termination_log=str(log))
    assert report_failure(made, [LATE, EARLY], 0) == 128 + 6
    assert json.loads(log.read_text()) == {"stepset": {"failed": EARLY}}


def test_the_exit_code_is_the_launchers_except_for_failures_of_the_agent(config: Callable[..., Config]) -> None:
    assert report_failure(config(), [LATE], 1) == 1
    assert report_failure(config(), [{**LATE, "kind": "OutOfMemory"}], 1) == 1
    assert report_failure(config(), [{**LATE, "kind": "Rendezvous", "exit_code": 71}], 1) == 71


@pytest.mark.parametrize(("seen", "found"), [((), True), ((0, 1), True), ((2, 3), False)])
def test_a_result_is_read_in_the_pod_of_rank_0(
    config: Callable[..., Config], tmp_path: Path, seen: tuple[int, ...], found: bool
) -> None:
    path = tmp_path / "result"
    env = {"STEPSET_RESULT_FILE": str(path)}
    assert read_result(config(), env, ranks(*seen), NO_SECRETS) is None
    path.write_text("1.5")
    assert read_result(config(), env, ranks(*seen), NO_SECRETS) == (b"1.5" if found else None)


def test_a_result_reported_by_another_pod_has_priority(config: Callable[..., Config]) -> None:
    assert read_result(config(), {}, ranks(result=(1, b"2")), NO_SECRETS) == b"2"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ((9, b""), "the program succeeded, but the result is 9 bytes, the limit is 8; save it"),
        ((3, b"nan-"), "the program succeeded, but the result is not JSON ("),
    ],
)
def test_a_result_that_is_too_large_or_not_json_is_a_failure(
    config: Callable[..., Config], result: tuple[int, bytes], error: str
) -> None:
    with pytest.raises(AgentError, match=re.escape(error)) as caught:
        read_result(config(result_limit=8), {}, ranks(result=result), NO_SECRETS)
    assert (caught.value.code, caught.value.kind) == (72, "Rejected")


def test_a_message_that_cannot_be_written_is_reported(
    config: Callable[..., Config], capfd: pytest.CaptureFixture[str]
) -> None:
    write_termination_log(config(termination_log="/proc/none/log"), b"x")
    assert capfd.readouterr().err == "stepset: cannot write /proc/none/log: No such file or directory\n"
