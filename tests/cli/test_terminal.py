"""Output to a terminal: colours if enabled, no control sequences that break lines, no broken characters."""

from __future__ import annotations

import doctest
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.cli.arguments import overrides
from stepset.cli.output import log_lines, terminal, world
from stepset.cli.output.terminal import for_terminal, is_terminal, painted, printable, source_colour, wants_colour


class Terminal(io.StringIO):
    """A stream whose isatty() returns True."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("module", [terminal, overrides, log_lines, world], ids=lambda m: m.__name__)
def test_the_docstring_examples_are_correct(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]  # a module
    assert result.attempted > 0
    assert result.failed == 0


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert is_terminal(Terminal())
    assert not wants_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert wants_colour(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())


def test_neighbouring_ranks_have_different_colours() -> None:
    colours = [source_colour(f"rank {n}") for n in range(8)]
    assert len(set(colours)) == 8
    assert source_colour("rank 10") == source_colour("rank 0")
    assert source_colour("launcher") == source_colour("prepare-0") not in colours
    assert painted("x", "36", False) == "x"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext", "plain\ttext"),
        ("\r 10%|#   |\r 50%|##  |\r100%|####|", "100%|####|"),
        ("done\r", "done"),
        ("\x1b[32mgreen\x1b[0m", "\x1b[32mgreen\x1b[0m\x1b[0m"),
        ("\x1b[31mred without end", "\x1b[31mred without end\x1b[0m"),
        ("up\x1b[A and clear\x1b[2K", "up and clear"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("be\x07ll \x08back \x00nul \x9b31mC1", "bell back nul 31mC1"),
        ("cut \x1b", "cut "),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_finally_show_it(printed: str, shown: str) -> None:
    assert for_terminal(printed) == shown


@settings(deadline=None, derandomize=True)
@given(st.text(st.sampled_from("ab\x1b[]m0;2K\r\x07\\\x9b\t"), max_size=30))
def test_all_control_sequences_but_colours_are_removed(text: str) -> None:
    import re

    shown = re.sub("\x1b\\[[0-9;:]*m", "", for_terminal(text))
    assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", shown)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_printable_text_is_one_line_and_otherwise_unchanged(text: str) -> None:
    assert len(printable(text).split("\n")) == 1
    if text.isprintable():
        assert printable(text) == text
