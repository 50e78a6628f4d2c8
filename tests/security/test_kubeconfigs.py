"""Reading a kubeconfig takes time and memory proportional to its size, also in the kubernetes package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from kubernetes import client

from stepset.backends.kubernetes.api.kubeconfig import load_into
from stepset.errors import BadInputError

VALID = """\
current-context: c
contexts: [{name: c, context: {cluster: c, user: c, namespace: n}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: c, user: {token: t}}]
"""
BOMB = "a: &a0 {x: 1}\n" + "".join(f"b{n}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 9)}]}}\n" for n in range(6))
HOSTILE = {
    "a number of base 60": f"a: 1{':1' * 50_000}\n",
    "a fraction of base 60": f"a: 1{':1' * 50_000}.5\n",
    "a quoted number with a tag": f'a: !!int "1{":1" * 50_000}"\n',
    "merged aliases": BOMB,
    "many levels": f"a: {'[' * 101}{']' * 101}\n",
}


def load(path: Path) -> str:
    return load_into(client.Configuration(), str(path), None, "python")


def numbers_read(action: Callable[[], object]) -> int:
    """The number of values that PyYAML reads as numbers during an action."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_name in ("construct_yaml_int", "construct_yaml_float")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_file_beyond_the_limits_is_an_error_before_a_value_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(VALID + text)

    def refused() -> None:
        with pytest.raises(BadInputError, match=r"kubeconfig .*: .*not readable as YAML; fix the file"):
            load(path)

    assert numbers_read(refused) == 0


def test_numbers_within_the_limits_are_read_by_each_loader(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"{VALID}a: 1{':1' * 400}\ncertificate: {'A' * 5000}\nb: '1{':1' * 50_000}'\n")
    assert numbers_read(lambda: load(path)) > 1
    assert load(path) == "n"
