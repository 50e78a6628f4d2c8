"""Messages of API server replies: one line of bounded length, whatever the server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.backends.kubernetes.api.answers import Answer
from stepset.backends.kubernetes.api.replies import read_reply


def message(value: Any) -> str:
    body = {"kind": "Status", "message": value}
    return read_reply(Answer("https://server", 403), json.dumps(body).encode()).message


def test_a_message_is_one_line() -> None:
    assert message("first\n  second") == "first second"


def test_a_long_message_ends_with_a_mark_of_what_is_missing() -> None:
    assert message("x" * 301) == "x" * 299 + "…"
    assert message("x" * 300) == "x" * 300


@pytest.mark.parametrize("value", [None, 7, ["text"]])
def test_a_message_that_is_not_text_is_empty(value: object) -> None:
    assert message(value) == ""
