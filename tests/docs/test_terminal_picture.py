"""docs/images/run.svg, the terminal of a real run: what it shows, and how the tool draws a terminal."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools.terminal_picture import COMMANDS, PICTURE, picture

ROOT = Path(__file__).resolve().parents[2]


def rows(svg: str) -> list[str]:
    """The text of each row of the terminal."""
    found: dict[str, str] = {}
    for row, text in re.findall(r'<text class="run-r\d+"[^>]*url\(#run-line-(\d+)\)">([^<]*)</text>', svg):
        found[row] = found.get(row, "") + unescape(text).replace("\xa0", " ").strip("\n")
    return [found[row] for row in sorted(found, key=int)]


def test_the_stored_picture_shows_both_commands_and_a_run_of_four_ranks_that_succeeded() -> None:
    shown = rows(PICTURE.read_text(encoding="utf-8"))
    assert [row.removeprefix("$ ") for row in shown if row.startswith("$ ")] == list(COMMANDS)
    text = "\n".join(shown)
    assert re.search(r'stepset: run train-\w{6} succeeded in .*; result: {"world_size": 4, "rank_sum": 10', text)
    assert re.findall(r"^rank (\d) +node-(\d) .*Succeeded", text, re.MULTILINE) == [*zip("0123", "0011", strict=True)]


def test_the_readme_and_the_start_page_show_it() -> None:
    assert "](docs/images/run.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](images/run.svg)" in (ROOT / "docs/index.md").read_text(encoding="utf-8")


def test_it_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert {node.tag.partition("}")[2] for node in ElementTree.fromstring(svg).iter()} == {
        *("svg", "style", "defs", "clipPath", "rect", "text", "g", "circle")
    }
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


def test_of_a_line_that_is_drawn_again_the_last_state_is_shown() -> None:
    svg = picture("\x1b[7mPending\x1b[0m\r\x1b[K\x1b[36m[rank 0]\x1b[0m <a>\r\n", "t", 40)
    assert rows(svg) == ["[rank 0] <a>"]


def test_a_long_line_continues_in_the_next_row() -> None:
    assert rows(picture("abcdefgh", "t", 5)) == ["abcde", "fgh"]


def test_output_that_moves_the_cursor_up_is_refused() -> None:
    with pytest.raises(ValueError, match="moves the cursor up"):
        picture("a\nb\r\x1b[1A\x1b[J", "t", 40)
