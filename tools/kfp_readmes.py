"""Writes the README.md of each Kubeflow component from the component's docstring and its metadata.yaml.

`make docs` runs this program. A test fails if a page does not match its component. The generator of
kubeflow/pipelines-components (scripts/generate_readme) writes the same pages from the same files. The text below the
marker is written by hand, and the program does not change this text.
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
    """Returns the text of a component's page. The text below the marker is copied from the existing page.

    Args:
        folder: the folder of the component.
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
        "\n".join(_metadata(metadata, owners)) + "\n",
        "\n".join([MARKER, own]).strip(),
    ]
    return "\n\n".join(parts) + "\n"


def meanings_of(component: str) -> dict[str, str]:
    """Returns a mapping from the name of each argument of a component to its description."""
    return _docstring(ast.get_docstring(_function(COMPONENTS / component / "component.py")) or "")[1]


def _function(path: Path) -> ast.FunctionDef:
    tree = ast.parse(path.read_text("utf-8"))
    return next(each for each in tree.body if isinstance(each, ast.FunctionDef))


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns the overview in a docstring, and a mapping from the name of each argument to its description."""
    overview, _, arguments = text.partition("\n\nArgs:\n")
    meanings: dict[str, str] = {}
    for line in arguments.splitlines():
        if (found := _ARGUMENT.match(line)) is None:
            raise ValueError(f"{line!r}: upstream's generator breaks the table's row at the end of a line; shorten it")
        meanings[found[1]] = found[2]
    return overview, meanings


def _inputs(function: ast.FunctionDef, meanings: dict[str, str]) -> list[str]:
    given = function.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + [ast.literal_eval(each) for each in given.defaults]
    rows = ["| Parameter | Type | Default | Description |", "|-----------|------|---------|-------------|"]
    for argument, default in zip(given.args, defaults, strict=True):
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        shown = '""' if default == "" else str(default)
        rows.append(f"| `{argument.arg}` | `{kind}` | `{shown}` | {meanings[argument.arg]} |")
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
