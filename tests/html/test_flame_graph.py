"""The flame graph of ranks: one escaped page without resources, in which each frame shows its ranks."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepset.html.flame_graph import stacks_html, stacks_page
from stepset.watch.stacks.document import read_document
from stepset.watch.stacks.model import RunStacks
from tests.browser import browser
from tests.stacks import LIBRARY, WAITS, document, loading, process, waiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]


def run_of(*ranks: dict[str, Any], problems: tuple[str, ...] = ()) -> RunStacks:
    return RunStacks("digits-1", 1_795_000_000.0, read_document(document(*ranks)), problems)


MIXED = run_of(*(waiting(n) for n in range(7)), loading(7), problems=("pod digits-1-node-9: is not running any more",))


class _Tags(HTMLParser):
    """Checks that every element is closed, and collects the attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.deepest = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)
        self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(page: str) -> _Tags:
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def test_the_page_has_no_scripts_and_no_resources() -> None:
    page = stacks_page(MIXED, "2026-11-29 13:00:00 UTC")
    tags = tags_of(page)
    assert not tags.names & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "href")}
    assert "url(" not in page
    assert "@import" not in page


def test_a_frame_shows_the_ranks_in_it_and_the_ranks_not_in_it() -> None:
    page = stacks_page(MIXED)
    frames = re.findall(r'<div class="(frame[^"]*)"[^>]*><i>([^<]*)</i><b>([^<]*)</b> ([^<]*)</div>', page)
    assert ("frame own", "0-7 | none", "&lt;module&gt;", "train.py:60") in frames
    assert ("frame own", "0-6 | 7", "backward", "train.py:42") in frames
    assert ("frame own few", "7 | 0-6", "epoch", "train.py:30") in frames
    assert ("frame own few", "7 | 0-6", "__getitem__", "data.py:17") in frames
    assert "digits-1-node-9: is not running any more" in page


def test_text_of_a_rank_is_escaped() -> None:
    bad = '"><script>alert(1)</script>\u202e'
    frames = [[bad, f"/app/{bad}.py", 1]]
    hostile = process(frames, name=bad, state="S", wchan=bad, why=bad)
    text = stacks_page(run_of({"rank": 0, "processes": [hostile, {**hostile, "kind": "child"}], "why": bad}))
    assert not tags_of(text).names & {"script"}
    assert "\u202e" not in text


def test_a_deep_and_a_wide_graph_are_limited() -> None:
    deep = {"rank": 0, "processes": [process([[f"f{n}", "/app/train.py", n] for n in range(64)])]}
    assert tags_of(stacks_page(run_of(deep))).deepest < 250
    wide = [
        {"rank": n, "processes": [process([[f"f{n}-{k}", "/app/a.py", k] for k in range(60)])]} for n in range(1000)
    ]
    page = stacks_page(run_of(*wide))
    assert len(page) < 8_000_000
    assert re.search(r"\d+ more stacks</p>", page)


def test_other_threads_are_folded() -> None:
    threads = [{"name": "MainThread", "frames": WAITS}, {"name": "pin", "frames": [["pin", f"{LIBRARY}/p.py", 3]]}]
    page = stacks_page(run_of({"rank": 0, "processes": [{**process([]), "threads": threads}]}))
    assert page.index("<details>") < page.index(">pin<") < page.index("</details>")


@pytest.mark.local
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_outlier_beside_the_others(browser: Browser, tmp_path: Path, scheme: Any) -> None:
    """`STEPSET_SCREENSHOTS=DIR` saves pictures."""
    file = tmp_path / "stacks.html"
    file.write_text(stacks_page(MIXED, "2026-11-29 13:00:00 UTC"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1100, "height": 800}, color_scheme=scheme)
    page.goto(file.as_uri())
    frames = page.locator(".flames .frame")
    boxes: dict[str, Any] = {}
    for index in range(frames.count()):
        name = frames.nth(index).locator("b").inner_text()
        boxes.setdefault(name, frames.nth(index).bounding_box())
    assert boxes["backward"]["y"] == boxes["epoch"]["y"] > boxes["<module>"]["y"]
    assert boxes["backward"]["width"] > 1.5 * boxes["epoch"]["width"] > 150
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if directory := os.environ.get("STEPSET_SCREENSHOTS"):
        page.screenshot(path=f"{directory}/stacks-{scheme}.png", full_page=True)
    page.close()


def test_a_notebook_shows_the_same_element() -> None:
    assert stacks_html(MIXED) in stacks_page(MIXED)
