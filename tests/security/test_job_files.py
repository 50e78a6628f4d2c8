"""Any job file of at most a megabyte gives a result or an error, without a crash, a hang or a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepset
from stepset.spec.yamlfile import read_mapping
from tests.cli.conftest import STEPSET

BOMB = "a: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9)
)
TEXTS = {
    "sequences": "a: " + "[" * 100_000,
    "mappings": "{a: " * 300 + "1" + "}" * 300,
    "json": '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "alias bomb": f"name: x\n{BOMB}",
    "huge integer": f"num_nodes: {'9' * 5000}",
    "number of base 60": f"command: [true]\nnum_nodes: 1{':1' * 500_000}",
    "fraction of base 60": f"command: [true]\nnum_nodes: 1{':1' * 500_000}.5",
    "many nodes": "command: [true]\nframework: mpi\nnum_nodes: 2147483647",
    "many replicas": "command: [true]\nroles: [{name: a, command: [b], replicas: 2147483647}]",
    "long quantity": f"command: [true]\nresources_per_node: {{cpu: '{'9' * 16_000}'}}",
    "long seconds": f"command: [true]\ndeadline: '{'9' * 4400}'",
    "long duration": f"command: [true]\ndeadline: {'9' * 4400}d1s",
    "long value": f"command: [true]\nnum_nodes: {'x' * 1_000_000}",
    "binary": "\x00\x01",
    "too large": "a: " + "x" * 5_000_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_job_file_gives_short_errors(tmp_path: Path, name: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(TEXTS[name])
    done = subprocess.run([STEPSET, "validate", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "int_max_str_digits" not in done.stderr
    assert all(len(line) < 1000 for line in done.stderr.splitlines())


@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_a_job_file_that_is_no_regular_file_is_rejected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "job.yaml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    done = subprocess.run([STEPSET, "validate", path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("field", ["pod_template", "env", "framework", "unknown"])
def test_a_deep_mapping_is_an_error_or_a_job(field: str) -> None:
    with suppress(stepset.BadInputError):
        stepset.render({"command": ["true"], "image": "a:1", field: nested(5000)})


def role_rows(count: int, *, chained: bool) -> list[dict[str, Any]]:
    """Returns roles that start together, or roles of which each waits for the role before it."""
    roles = [{"name": f"r{index}", "command": ["a"]} for index in range(count)]
    if not chained:
        return roles
    waits = [{}, *({"after": [role["name"]]} for role in roles)]
    return [{**role, "before": True, **after} for role, after in zip(roles, waits, strict=False)]


def calls_of_render(target: str, fields: dict[str, Any]) -> int:
    """Returns the number of calls of Python functions, and of steps of generators, in `render`."""
    found = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        stepset.render(fields, target=target)
    finally:
        sys.setprofile(None)
    return found


COSTS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "jobset": ("jobset", False, {}),
    "trainjob": ("trainjob", False, {}),
    "volcano": ("volcano", False, {}),
    "chain": ("jobset", True, {"scheduling": {"gang": "coscheduling"}}),
    "topology": ("trainjob", False, {"scheduling": {"topology": {"exclusive": "rack"}}}),
    "template": ("jobset", False, {"pod_template": {"containers": [{"name": "node", "tty": True}]}}),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_work_of_render_is_proportional_to_the_number_of_roles(name: str) -> None:
    target, chained, more = COSTS[name]
    few, many = (
        {"name": "a", "command": ["a"], "image": "a:1", "roles": role_rows(count, chained=chained), **more}
        for count in (100, 400)
    )
    calls_of_render(target, few)  # imports modules, and fills caches
    assert calls_of_render(target, many) < 5 * calls_of_render(target, few)


TEXT = st.text(st.sampled_from("ab:{}[]&*!|>-'\"#,? \n\t\\0e9"), max_size=200)


@settings(max_examples=3 * settings().max_examples)
@given(TEXT)
def test_any_text_is_a_mapping_or_bad_input(text: str) -> None:
    with suppress(stepset.BadInputError):
        assert read_mapping(text, "job.yaml") is not None
