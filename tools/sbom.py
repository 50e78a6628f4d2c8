"""Writes the CycloneDX SBOMs of the wheel and of the image of KFP's steps, from the lock files (`make sbom`).

The documents list the packages in the lock files, with their versions and hashes. They do not list the packages of the
base image. If a user's own resolver selects other packages for the wheel, the documents do not list these packages.

    python tools/sbom.py DIRECTORY
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WHEEL = (ROOT / "locks/runtime.txt",)
IMAGE = (ROOT / "locks/runtime.txt", ROOT / "locks/kfp-executor.txt")


def wheel_document() -> dict[str, Any]:
    """Returns the SBOM of the wheel with its extra `kubernetes`."""
    document = _document(WHEEL)
    root = document["metadata"]["component"]
    root |= {"type": "library", "bom-ref": f"stepset-{VERSION}", "purl": f"pkg:pypi/stepset@{VERSION}"}
    return _completed(document)


def image_document() -> dict[str, Any]:
    """Returns the SBOM of the image that deploy/kfp/Containerfile builds. The SBOM has stepset as a component."""
    document = _document(IMAGE)
    document["components"].append({**wheel_document()["metadata"]["component"]})
    root = {"type": "container", "name": "stepset/kfp-python", "version": VERSION, "bom-ref": f"kfp-python-{VERSION}"}
    document["metadata"]["component"] = root
    return _completed(document)


def _document(locks: Sequence[Path]) -> dict[str, Any]:
    """Returns the document that cyclonedx-py creates for the packages of lock files."""
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--spec-version", "1.6"]
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", *options, "-"]
    text = "".join(lock.read_text() for lock in locks)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Adds the dependencies to a document, and returns the document.

    The main component depends on all other components.

    Raises ValueError if the document violates the schema.
    """
    root = document["metadata"]["component"]["bom-ref"]
    parts = sorted(each["bom-ref"] for each in document["components"])
    document["dependencies"] = [{"ref": root, "dependsOn": parts}, *({"ref": each} for each in parts)]
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)):
        raise ValueError(f"the SBOM violates CycloneDX 1.6: {problem}")
    return document


def main(directory: Path) -> None:
    """Writes both documents to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    documents = {f"stepset-{VERSION}": wheel_document(), f"stepset-kfp-python-{VERSION}": image_document()}
    for name, document in documents.items():
        path = directory / f"{name}.cdx.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
        print(f"{path}: {len(document['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
