"""Writes the README.md of each Kubeflow component from its docstring and metadata.yaml. `make docs` runs it.

A test compares the pages with the output. The format is that of kubeflow/pipelines-components, which generates pages
from the same files (scripts/generate_readme). Text below the marker is written by hand and kept.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import yaml

COMPONENTS = Path(__file__).resolve().parent.parent / "components" / "stepset_kfp" / "training"
MARKER = "<!-- custom-content -->"
_ARGUMENT = re.compile(r"^    (\w+): (.*)$")


def page(folder: Path) -> str:
    """Returns a component's page, with the text below the marker of the existing page.

    Args:
        folder: the component's folder.
    """
    function = _function(folder / "component.py")
    overview, meanings = _docstring(ast.get_docstring(function) or "")
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text("utf-8"))
    owners = yaml.safe_load((folder / "OWNERS").read_text("utf-8"))
    present = folder / "README.md"
    own = present.read_text("utf-8").partition(MARKER)[2].strip() if present.exists() else ""
    parts = [
        f"# {folder.name.replace('_', ' ').title()} ✨",
        f"> ⚠️ **Stability: {metadata['stability']}** — This asset is not yet stable and may change.",
        "## Overview 🧾",
        overview,
        "## Inputs 📥",
        "\n".join(_inputs(function, meanings)),
        "## Metadata 🗂️",
        "\n".join(_metadata(metadata, owners)),
        "\n".join([MARKER, own]).strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _function(path: Path) -> ast.FunctionDef:
    tree = ast.parse(path.read_text("utf-8"))
    return next(each for each in tree.body if isinstance(each, ast.FunctionDef))


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns the overview, and the meaning of each argument by its name."""
    overview, _, arguments = text.partition("\n\nArgs:\n")
    meanings: dict[str, str] = {}
    for line in arguments.splitlines():
        if found := _ARGUMENT.match(line):
            name, meanings[found[1]] = found[1], found[2]
        elif line.strip():
            meanings[name] += f" {line.strip()}"
    return overview, meanings


def _inputs(function: ast.FunctionDef, meanings: dict[str, str]) -> list[str]:
    given = function.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + [ast.literal_eval(each) for each in given.defaults]
    rows = ["| Parameter | Type | Default | Description |", "|-----------|------|---------|-------------|"]
    for argument, default in zip(given.args, defaults, strict=True):
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        rows.append(f"| `{argument.arg}` | `{kind}` | `{default!s}` | {meanings[argument.arg]} |")
    return rows


def _metadata(metadata: dict[str, Any], owners: dict[str, list[str]]) -> list[str]:
    lines = [f"- **Name**: {metadata['name']}", f"- **Stability**: {metadata['stability']}", "- **Dependencies**:"]
    for group, held in metadata["dependencies"].items():
        lines.append(f"  - {group.replace('_', ' ').title()}:")
        lines += [f"    - Name: {each['name']}, Version: {each['version']}" for each in held]
    lines += ["- **Tags**:", *(f"  - {tag}" for tag in metadata["tags"])]
    lines += [f"- **Last Verified**: {metadata['lastVerified']}", "- **Owners**:"]
    for role in ("approvers", "reviewers"):
        lines += [f"  - {role.title()}:", *(f"    - {each}" for each in owners[role])]
    return lines


def main() -> int:
    """Writes every page."""
    for path in sorted(COMPONENTS.glob("*/component.py")):
        text = page(path.parent)
        (path.parent / "README.md").write_text(text, encoding="utf-8")
        print(path.parent / "README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
