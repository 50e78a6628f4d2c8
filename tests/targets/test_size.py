"""Rendered examples stay small, so that a reviewer sees mostly the job."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.dump import to_yaml
from stepset.targets.names import AGENT_KEY
from tests.targets.golden import pairs, render_example

KIB = 1024
TORCH = 70 * KIB
MORE = 10 * KIB
"""Bytes that any other example may add to TORCH, except its own files."""

PAIRS = sorted(pairs())


def budget(name: str, objects: list[dict[str, Any]]) -> int:
    """Returns the limit for the bytes of a rendered example."""
    return TORCH if name == "torch" else TORCH + MORE + own_files(objects)


def size(objects: list[dict[str, Any]]) -> int:
    return len(to_yaml(objects).encode())


def own_files(objects: list[dict[str, Any]]) -> int:
    """Returns the bytes of a job's code in the manifests."""
    code = [each for each in objects if each["metadata"]["name"].endswith("-code")]
    values = [value for each in code for field in ("data", "binaryData") for value in each.get(field, {}).values()]
    return sum(len(value.encode()) for value in values)


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=lambda v: v)
def test_an_example_renders_within_its_budget(name: str, target: str) -> None:
    objects = render_example(name, target)
    assert size(objects) <= budget(name, objects)


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=lambda v: v)
def test_an_agent_that_is_not_compressed_exceeds_it(name: str, target: str) -> None:
    objects = [_with_sources(each) for each in render_example(name, target)]
    assert size(objects) > budget(name, objects)


def _with_sources(each: dict[str, Any]) -> dict[str, Any]:
    if AGENT_KEY not in each.get("data", {}):
        return each
    from tools.build_agent import read_modules

    return {**each, "data": {**each["data"], AGENT_KEY: read_modules()}}
