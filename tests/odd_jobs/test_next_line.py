"""The character U+0085, which is a line break in YAML 1.1."""

from __future__ import annotations

import pytest
import yaml

from stepset.targets.dump import to_yaml
from tests.odd_jobs import OddJob

TEXT = "a\x85b"
ODD_JOB = OddJob(
    job={"env": {"V": TEXT}, "args": [TEXT]},
    expected="The character reaches the command; stepset refuses it where the controller would replace it by a space.",
    source="kubeflow/trainer v2.3.0 pkg/runtime/core/snapshot.go; go.yaml.in/yaml v2 readerc.go",
    refused={"trainjob": "contains the character U+0085, which Kubeflow Trainer cannot read"},
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_yaml_reads_back_as_the_manifests(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects
