"""kubectl reads the YAML that stepset prints as stepset means it, although its YAML is not Python's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stepset.rendering import make_request, render
from stepset.sources import Sources
from stepset.spec import parse_job
from stepset.targets.dump import to_yaml
from stepset.targets.kinds import TARGETS
from tests.cluster.testbed.handle import Cluster
from tests.targets.yaml_texts import MISREAD, TEXTS

# kubectl takes most of the time, therefore each example has many texts.
REFUSED = re.compile("[\x7f-\x9f\ufffe\uffff]")
"""Characters that stepset refuses for TrainJobs (tests/odd_jobs/test_next_line.py)."""
_HERE = Path(__file__).parent
MANY = settings(
    max_examples=settings().max_examples // 10,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _read(cluster: Cluster, text: str) -> Any:
    """Returns the object that kubectl reads from a YAML text; `--local` accepts kinds that the server lacks."""
    return json.loads(
        cluster.kubectl("patch", "--local", "--type=merge", "--patch={}", "-o", "json", "-f", "-", text=text)
    )


def _config_map(texts: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "texts",
            "namespace": "default",
            "annotations": {f"k{n}": text for n, text in enumerate(texts)},
            "ownerReferences": [{"name": text} for text in texts],  # texts in a list
        },
        "data": dict.fromkeys(texts, "a key"),  # texts as keys
    }


def test_kubectl_reads_every_text_that_a_yaml_reader_may_change(cluster: Cluster) -> None:
    given = _config_map(list(MISREAD))
    assert _read(cluster, to_yaml([given])) == given


@MANY
@given(st.lists(TEXTS, min_size=50, max_size=200))
def test_kubectl_reads_any_text_unchanged(cluster: Cluster, texts: list[str]) -> None:
    given = _config_map(texts)
    assert _read(cluster, to_yaml([given])) == given


@pytest.mark.parametrize("target", TARGETS)
def test_kubectl_reads_a_rendered_job_unchanged(cluster: Cluster, target: str) -> None:
    texts = [text for text in MISREAD if "\0" not in text and not (target == "trainjob" and REFUSED.search(text))]
    job = parse_job(
        {
            "name": "texts",
            "image": "example/train:1",
            "command": ["train"],
            "args": texts,
            "env": {f"A{n}": text for n, text in enumerate(texts)},
            "annotations": {f"a{n}": text for n, text in enumerate(texts)},
        }
    )
    request = make_request(job, Sources(_HERE, _HERE, None, None), namespace="default")
    for each in render(request, target):
        assert _read(cluster, to_yaml([each])) == each
