"""Sphinx's configuration of the documentation site. `make docs-site` builds it, with warnings as errors.

The source directory is the repository, so that links between docs/ and the pages beside it lead to pages.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _PROJECT["name"]
version = release = _PROJECT["version"]
html_title = f"{project} {version}"

root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "deploy/kfp/README.md",
    "components/README.md",
]
# Directories without pages, which Sphinx would search.
exclude_patterns = [".*", "benchmarks", "build", "demo-out", "dist", "examples", "src", "tests"]

extensions = ["myst_parser"]
nitpicky = True  # a reference without a target is a warning
myst_heading_anchors = 6  # headings have the anchors that they have on GitHub
highlight_language = "text"  # most blocks without a language are commands and their output

html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
# The start page at the root of the site leads to docs/index.html.
templates_path = ["site"]
html_additional_pages = {"index": "start.html"}
html_theme_options = {
    "navigation_with_keys": True,
    # Fonts of the system: the pages load nothing from other servers.
    "light_css_variables": {
        "font-stack": "system-ui, sans-serif",
        "font-stack--monospace": "ui-monospace, 'DejaVu Sans Mono', monospace",
    },
}
