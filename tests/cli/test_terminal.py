"""Output to a terminal: colours if enabled, no control sequences that break lines, no broken characters."""

from __future__ import annotations

import doctest
import io

import pytest

from stepset import log_sources, run_filter
from stepset.cli.arguments import overrides
from stepset.cli.output import explanation, terminal
from stepset.cli.output.terminal import is_terminal, painted, source_colour, wants_colour


class Terminal(io.StringIO):
    """A stream whose isatty() returns True."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "module", [terminal, overrides, log_sources, run_filter, explanation], ids=lambda m: m.__name__
)
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
