"""The golden files: what every example becomes in every target that can hold it, beside the examples.

Used by the tests, and by `make golden`, which writes them anew. What comes from other files - the agent, the job's
code, their hash - is named instead of repeated; that it is all there is tested by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import stepset
from stepset.targets.config_maps import AGENT_KEY
from stepset.targets.dump import to_yaml
from stepset.targets.metadata import SPEC_HASH
from stepset.targets.render import TARGETS

EXAMPLES = Path(__file__).parents[2] / "examples"
GOLDEN = EXAMPLES / "golden"

# Examples whose manifests hold the namespace.
NAMESPACES = {"mpich": "ml"}

# (example, target) -> what the refusal says, where the target cannot hold the example.
REFUSED = {
    ("job", "job"): "roles.prepare: target job",
    ("job", "statefulset"): "roles.prepare: target statefulset",
    ("job", "volcano"): "roles.prepare.before: Volcano",
    ("mpi", "job"): "framework: target job",
    ("mpi", "statefulset"): "framework: target statefulset",
    ("mpich", "job"): "framework: target job",
    ("mpich", "statefulset"): "framework: target statefulset",
    ("roles", "job"): "roles.prepare: target job",
    ("roles", "statefulset"): "roles.prepare: target statefulset",
    ("roles", "volcano"): "roles.prepare.before: Volcano",
    ("torch-elastic", "volcano"): "framework.elastic: a Volcano Job",
    ("torch-queue", "job"): "restart.max_restarts: target job",
    ("torch-queue", "statefulset"): "restart.user_errors: target statefulset",
    ("torch-queue", "volcano"): "restart.user_errors: target volcano",
}


def examples() -> list[str]:
    """Names of the example job files."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def pairs() -> Iterator[tuple[str, str]]:
    """Every example with every target that can hold it."""
    for name in examples():
        for target in TARGETS:
            if (name, target) not in REFUSED:
                yield name, target


def golden_path(name: str, target: str) -> Path:
    return GOLDEN / f"{name}.{target}.yaml"


@cache
def render_example(name: str, target: str) -> list[dict[str, Any]]:
    return stepset.render(EXAMPLES / f"{name}.yaml", target, namespace=NAMESPACES.get(name))


def golden_text(objects: list[dict[str, Any]]) -> str:
    """The manifests as the golden file holds them."""
    return to_yaml(_shortened(each) for each in objects)


def _without_hash(each: dict[str, Any]) -> dict[str, Any]:
    annotations = {**each["metadata"]["annotations"], SPEC_HASH: "(SHA-256 of the job and its code)"}
    return {**each, "metadata": {**each["metadata"], "annotations": annotations}}


def _shortened(each: dict[str, Any]) -> dict[str, Any]:
    short = _without_hash(each)
    if each["kind"] == "TrainingRuntime":  # it holds the JobSet's, too
        spec = each["spec"]
        short["spec"] = {**spec, "template": _without_hash(spec["template"])}
    if each["metadata"]["name"].endswith("-code"):
        for field in ("data", "binaryData"):
            if field in each:
                # Still valid base64, so that the file can be given to an API server as it is.
                short[field] = dict.fromkeys(each[field], "Y29kZQ==" if field == "binaryData" else "(the job's code)")
    elif AGENT_KEY in each.get("data", {}):
        short["data"] = {**each["data"], AGENT_KEY: "(src/stepset/agent/built/agent.py)"}
    return short
