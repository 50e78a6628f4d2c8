"""The pod of a process, from the token of its service account."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.orphans.own_pod import own_pod
from stepset.backends.orphan_policy import OwnerPod


def token(path: Path, claims: Any) -> Path:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    (path / "token").write_text(f"e30.{payload}.c2ln")
    return path / "token"


def test_a_projected_token_names_the_pod(tmp_path: Path) -> None:
    claims = {"kubernetes.io": {"namespace": "ml", "pod": {"name": "cli-7", "uid": "u-1"}}}
    assert own_pod(token(tmp_path, claims)) == OwnerPod("cli-7", "u-1")


@pytest.mark.parametrize("claims", [{}, [], {"kubernetes.io": {"pod": None}}, {"kubernetes.io": "x"}])
def test_other_tokens_name_none(tmp_path: Path, claims: Any) -> None:
    assert own_pod(token(tmp_path, claims)) is None


@pytest.mark.parametrize("text", ["", "opaque", "a.%%%.c", "a.é.c"])
def test_a_text_that_is_no_token_names_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    assert own_pod(tmp_path / "token") is None


def test_outside_of_a_pod_there_is_none(tmp_path: Path) -> None:
    assert own_pod(tmp_path / "token") is None
