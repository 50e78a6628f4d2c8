"""Writes the lists of frameworks in README.md, docs/index.md and docs/frameworks/README.md. `make docs` runs this file.

`FRAMEWORKS` determines the names, the pages and their order. The last line of each page contains the row of the page in
the table of docs/frameworks/README.md. A test compares the files with the result of `written`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from stepset.frameworks import FRAMEWORKS

ROOT = Path(__file__).resolve().parent.parent
_PAGES = [page for framework in FRAMEWORKS.values() for page in framework.pages]
_ROW = re.compile(r"<!-- row of README\.md: (?P<title>.+?) \| (?P<text>.+) \| (?P<examples>.+?) -->\n$")
_TEXTS = {
    "README.md": r"stepset supports these \[frameworks\].*?any other command\.",
    "docs/index.md": r"frameworks/README\n(frameworks/[\w-]+\n)+",
    "docs/frameworks/README.md": r"(\| \[[^\n]+?\]\([\w-]+\.md\) \|[^\n]*\n)+",
}
"""A regular expression for the list in each file."""


def written() -> Iterator[tuple[Path, str]]:
    """Yields each file with its text."""
    lists = _lists()
    for name, pattern in _TEXTS.items():
        text = (ROOT / name).read_text("utf-8")
        found = re.search(pattern, text, re.DOTALL)
        assert found, f"{name} has no list of frameworks"
        yield ROOT / name, text[: found.start()] + lists[name] + text[found.end() :]


def _lists() -> Mapping[str, str]:
    *names, last = [framework.name for framework in FRAMEWORKS.values() if framework.name]
    sentence = (
        f"stepset supports these [frameworks](docs/frameworks/README.md): {', '.join(names)} and {last}. A job can also"
        " run any other command."
    )
    return {
        "README.md": textwrap.fill(sentence, 120, break_long_words=False, break_on_hyphens=False),
        "docs/index.md": "".join(f"frameworks/{page}\n" for page in ("README", *_PAGES)),
        "docs/frameworks/README.md": "".join(map(_row, _PAGES)),
    }


def _row(page: str) -> str:
    text = (ROOT / "docs" / "frameworks" / f"{page}.md").read_text("utf-8")
    found = _ROW.search(text)
    assert found, f"the last line of docs/frameworks/{page}.md is not the row of README.md"
    examples = ", ".join(f"[{Path(each).name}](../../examples/{each})" for each in found["examples"].split(", "))
    return f"| [{found['title']}]({page}.md) | {found['text']} | {examples} |\n"


if __name__ == "__main__":
    for path, content in written():
        path.write_text(content, encoding="utf-8")
