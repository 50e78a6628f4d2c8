"""The documentation site: `make docs-site` rejects broken links, and the pages load nothing from other servers."""

from __future__ import annotations

import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPHINX = ROOT / ".venvs/docs/bin/sphinx-build"
_LOADING = {"audio", "embed", "iframe", "img", "input", "link", "script", "source", "video"}
"""Elements that load what `src` or `href` names."""
_CSS_URL = re.compile(r"""(?:url\(\s*|@import\s+)["']?(https?:|//)[^)"']*""")


def _build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command of `make docs-site` for other directories."""
    if not SPHINX.exists():
        reason = "Sphinx is not installed: make setup-docs"
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
    doctrees = output.with_name("doctrees")
    flags = ["--quiet", "--fresh-env", "--fail-on-warning", "--keep-going"]
    command = [SPHINX, *flags, "-c", ROOT / "docs", "-d", doctrees, source, output]
    return subprocess.run(command, capture_output=True, text=True)


class _Loaded(HTMLParser):
    """Collects the addresses of other servers from which a page loads something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _LOADING:
            self.found += [value for name, value in attrs if name in ("src", "href") and value and _elsewhere(value)]
        self.found += [value for name, value in attrs if name == "style" and value and _CSS_URL.search(value)]


def _elsewhere(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


def _loaded(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".css":
        return [match.group() for match in _CSS_URL.finditer(text)]
    parser = _Loaded()
    parser.feed(text)
    return parser.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "site"
    built = _build(ROOT, output)
    assert built.returncode == 0, built.stderr
    return output


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert {page.name: found for page in pages if (found := _loaded(page))} == {}


def test_the_page_at_the_root_leads_to_the_start_page(site: Path) -> None:
    [target] = re.findall(r"url=([^\"]+)", (site / "index.html").read_text(encoding="utf-8"))
    assert (site / target).is_file()


BROKEN = {
    "[a](other.md#missing)": "local id not found in doc 'docs/other': 'missing'",
    "[a](#missing)": "cross-reference target not found: 'missing'",
    "[a](missing.md)": "cross-reference target not found: 'missing.md'",
    "[a](../examples/missing.py)": "cross-reference target not found: '../examples/missing.py'",
    "![a](missing.svg)": "image file not readable: docs/missing.svg",
}


def test_a_broken_link_and_a_page_without_a_place_fail_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "source" / "docs"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("# Start\n\n```{toctree}\nother\n```\n\n" + "\n\n".join(BROKEN))
    (pages / "other.md").write_text("# Other\n")
    (pages / "alone.md").write_text("# Alone\n")
    built = _build(pages.parent, tmp_path / "site")
    assert built.returncode != 0
    warnings = built.stderr.splitlines()
    assert len(warnings) == len(BROKEN) + 1
    assert all(any(warning in line for line in warnings) for warning in BROKEN.values()), built.stderr
    assert any("alone.md" in line and "isn't included in any toctree" in line for line in warnings)


def test_an_address_of_another_server_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<script src="//a.example/x.js"></script><img src="x.png"><a href="https://b.example">b</a>')
    assert _loaded(page) == ["//a.example/x.js"]
    style = tmp_path / "style.css"
    style.write_text('@import "https://a.example/font.css"; a { background: url(data:image/png;base64,AA) }')
    assert len(_loaded(style)) == 1
