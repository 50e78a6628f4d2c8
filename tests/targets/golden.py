"""The golden files, beside the examples: the manifests of every example in every target that supports it.

Used by the tests, and by `make golden`, which writes the files. Content of other files (the agent, the job's code,
their hash) is replaced by a name; other tests check that it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import stepset
from stepset.targets.dump import to_yaml
from stepset.targets.kinds import TARGETS
from stepset.targets.metadata import SPEC_HASH
from stepset.targets.names import AGENT_KEY
from tests.targets.cases import CASES

EXAMPLES = Path(__file__).parents[2] / "examples"
GOLDEN = EXAMPLES / "golden"

# Examples whose manifests contain the namespace.
NAMESPACES = {"mpich": "ml"}

# (example, target) -> the error, if the target does not support the example.
REFUSED = {(name, target): error for target, case in CASES.items() for name, error in case.unsupported.items()}


def examples() -> list[str]:
    """Names of the example job files."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def pairs() -> Iterator[tuple[str, str]]:
    """Yields every example with every target that supports it."""
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
    """Returns the manifests as the golden file contains them."""
    return to_yaml(_shortened(each) for each in objects)


def _without_hash(each: dict[str, Any]) -> dict[str, Any]:
    annotations = {**each["metadata"]["annotations"], SPEC_HASH: "(SHA-256 of the job and its code)"}
    return {**each, "metadata": {**each["metadata"], "annotations": annotations}}


def _shortened(each: dict[str, Any]) -> dict[str, Any]:
    short = _without_hash(each)
    if each["kind"] == "TrainingRuntime":  # it also contains the JobSet's
        spec = each["spec"]
        short["spec"] = {**spec, "template": _without_hash(spec["template"])}
    if each["metadata"]["name"].endswith("-code"):
        for field in ("data", "binaryData"):
            if field in each:
                # Valid base64, so that the file can be sent to an API server unchanged.
                short[field] = dict.fromkeys(each[field], "Y29kZQ==" if field == "binaryData" else "(the job's code)")
    elif AGENT_KEY in each.get("data", {}):
        short["data"] = {**each["data"], AGENT_KEY: "(src/stepset/agent/built/agent.py)"}
    return short
