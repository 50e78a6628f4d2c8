"""`make sbom`: the documents contain what the lock files contain, and follow CycloneDX's schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools.audit import canonical, read_lock

from tests.tools.release import ROOT, TOOLS

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("tools")]

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) is None)
"""


@pytest.fixture(scope="module")
def written(tools: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """File -> document."""
    directory = tmp_path_factory.mktemp("sbom")
    subprocess.run([TOOLS / "python", ROOT / "tools/sbom.py", directory], check=True, timeout=600, capture_output=True)
    return {path.name: json.loads(path.read_text()) for path in directory.iterdir()}


def is_valid(document: dict[str, Any]) -> bool:
    command = [TOOLS / "python", "-W", "ignore", "-c", VALIDATE]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, timeout=60, check=True)
    return done.stdout == "True\n"


def document(written: dict[str, dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in written.values() if each["metadata"]["component"]["type"] == kind)
    return found


@pytest.mark.parametrize("kind", ["library", "container"])
def test_the_document_follows_the_schema(written: dict[str, dict[str, Any]], kind: str) -> None:
    made = document(written, kind)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert is_valid(made)
    assert not is_valid({**made, "components": [{"name": "without a type"}]}), "the validation can fail"


@pytest.mark.parametrize(
    ("kind", "locks", "more"), [("library", ["runtime"], 0), ("container", ["runtime", "kfp-executor"], 1)]
)
def test_the_document_has_every_package_with_version_and_hashes(
    written: dict[str, dict[str, Any]], kind: str, locks: list[str], more: int
) -> None:
    made = document(written, kind)
    locked = {(each.name, each.version) for name in locks for each in read_lock(ROOT / f"locks/{name}.txt")}
    own = [each for each in made["components"] if each["name"] == "stepset"]
    others = [each for each in made["components"] if each["name"] != "stepset"]
    assert {(canonical(each["name"]), each["version"]) for each in others} == locked
    assert all(each["externalReferences"][0]["hashes"] and each["purl"].startswith("pkg:pypi/") for each in others)
    assert len(own) == more
    root = made["metadata"]["component"]["bom-ref"]
    (depends,) = (each["dependsOn"] for each in made["dependencies"] if each["ref"] == root)
    assert len(depends) == len(made["components"])


def test_the_document_names_no_place_of_the_machine_that_wrote_it(written: dict[str, dict[str, Any]]) -> None:
    assert written
    for made in written.values():
        assert str(Path.home()) + "/" not in json.dumps(made)
        assert str(ROOT) not in json.dumps(made)
