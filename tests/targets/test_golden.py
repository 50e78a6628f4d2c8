"""Every example renders to the bytes of the golden file beside it; `make golden` writes the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import stepset
from stepset.errors import BadInputError
from stepset.rendering import agent_text
from stepset.spec.options import KINDS
from stepset.targets.dump import to_json, to_yaml
from tests.targets.cases import CASES
from tests.targets.golden import (
    EXAMPLES,
    GOLDEN,
    REFUSED,
    examples,
    golden_path,
    golden_text,
    pairs,
    render_example,
)

PAIRS = list(pairs())
# An object precedes the objects that mount it, select by it or refer to it. The workload is the last object.
BEFORE_THE_WORKLOAD = ("ConfigMap", "Secret", "Service", "PodGroup")


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=lambda v: v)
def test_the_example_renders_to_its_golden_file(name: str, target: str) -> None:
    path = golden_path(name, target)
    assert path.exists(), f"{path.name} is missing; run `make golden`"
    assert golden_text(render_example(name, target)) == path.read_text(encoding="utf-8")


def test_every_golden_file_has_an_example() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {golden_path(*pair).name for pair in PAIRS}


def test_every_framework_is_among_the_examples() -> None:
    kinds = set()
    for name in examples():
        framework = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text("utf-8"))["framework"]
        kinds.add(framework["kind"] if isinstance(framework, dict) else framework)
    assert kinds == set(KINDS)


@pytest.mark.parametrize(("name", "target"), REFUSED, ids=lambda v: v)
def test_a_target_that_does_not_support_the_example_rejects_it(name: str, target: str) -> None:
    with pytest.raises(BadInputError) as caught:
        render_example(name, target)
    assert REFUSED[name, target] in str(caught.value)


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=lambda v: v)
def test_manifests_are_in_the_order_of_an_apply(name: str, target: str) -> None:
    kinds = [each["kind"] for each in render_example(name, target)]
    assert kinds == sorted(kinds, key=(*BEFORE_THE_WORKLOAD, *CASES[target].objects).index)


def test_yaml_and_json_contain_the_same_objects() -> None:
    objects = render_example("roles", "jobset")
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects
    assert json.loads(to_json(objects)) == {"apiVersion": "v1", "kind": "List", "items": objects}


def test_the_manifests_contain_the_agent_and_the_code_unchanged() -> None:
    found = {each["metadata"]["name"]: each for each in stepset.render(EXAMPLES / "torch.yaml")}
    assert found["digits-agent"]["data"]["agent.py"] == agent_text()
    script = (EXAMPLES / "torch" / "train.py").read_text(encoding="utf-8")
    assert found["digits-code"]["data"] == {"train.py": script}


def test_two_interpreters_render_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.targets.golden import *;"
        "sys.stdout.write(''.join(golden_text(render_example(n, t)) for n, t in pairs() if n in ('roles', 'mpi')))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=EXAMPLES.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert texts[0].count(b"kind: JobSet") == 2
