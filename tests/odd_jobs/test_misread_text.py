"""Text that YAML readers other than Python's take for numbers, booleans or null."""

from __future__ import annotations

import pytest
import yaml

from stepset.targets.dump import to_yaml
from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob

TEXTS = (
    "y",
    "1e3",
    "08",
    "0o17",
    "1_000",
    "+.inf",
    "=",
    "<<",
    "~",
    "2026-11-25",
    "\ufeffa",
    " a ",
    "?a",
    "@a",
)
ODD_JOB = OddJob(
    job={"env": {f"V{n}": text for n, text in enumerate(TEXTS)}, "args": list(TEXTS)},
    expected="Every text reaches the command unchanged, also through render and kubectl apply.",
    source="sigs.k8s.io/yaml v1.6 goyaml.v2/resolve.go",
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_yaml_reads_back_as_the_manifests(target: str) -> None:
    objects = ODD_JOB.render(target)
    text = to_yaml(objects)
    assert list(yaml.safe_load_all(text)) == objects
    for word in ("y", "1e3", "08", "0o17", "1_000"):
        assert f": {word}\n" not in text and f"- {word}\n" not in text
