"""Tables are aligned, fit into the terminal, and take little time for each row."""

from __future__ import annotations

import re
import time

import pytest

from stepset.cli.output import tables
from stepset.cli.output.tables import Line, rendered, table

_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal without colours; COLUMNS is its width."""
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "30")
    return monkeypatch


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() -> None:
    page = rendered(table(("Name", "State"), [("a", "Running"), ("longer", "")]))
    assert page == "Name    State\na       Running\nlonger\n"


def test_a_column_that_is_empty_in_every_row_is_left_out() -> None:
    assert rendered(table(("A", "B", "C"), [("1", "", "3")])) == "A  C\n1  3\n"


def test_a_table_without_headings_has_only_its_rows() -> None:
    assert rendered(table(("A", "B"), [("1", "2")], header=False)) == "1  2\n"


def test_wide_characters_take_two_columns() -> None:
    assert rendered(table(("A", "B"), [("模型", "x"), ("ab", "y")])) == "A     B\n模型  x\nab    y\n"


def test_without_a_terminal_a_table_is_as_wide_as_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    assert rendered("x" * 500) == "x" * 500 + "\n"
    assert len(rendered(table(("A",), [("y" * 500,)])).splitlines()[1]) == 500


def test_cells_and_lines_are_wrapped_at_words_to_the_width_of_the_terminal(terminal: pytest.MonkeyPatch) -> None:
    page = rendered(Line("a line that is longer than thirty"), table(("Name", "Text"), [("n", "one two " * 6)]))
    assert all(len(line) <= 30 for line in page.splitlines())
    assert page.splitlines()[:2] == ["a line that is longer than", "thirty"]
    assert page.split().count("one") == page.split().count("two") == 6


def test_a_word_that_is_wider_than_its_column_is_folded(terminal: pytest.MonkeyPatch) -> None:
    lines = rendered(table(("Name", "Id"), [("n", "0123456789" * 4)])).splitlines()
    assert all(len(line) <= 30 for line in lines)
    assert "".join(line.split()[-1] for line in lines[1:]) == "0123456789" * 4


def test_the_first_column_is_the_last_to_become_narrower(terminal: pytest.MonkeyPatch) -> None:
    name = "a-name-of-20-letters"
    page = rendered(table(("Name", "A", "B"), [(name, "a" * 20, "b" * 20)]))
    assert name in page
    assert all(len(line) <= 30 for line in page.splitlines())


def test_a_terminal_narrower_than_the_columns_shows_every_cell(terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv("COLUMNS", "4")
    page = rendered(table(("A", "B", "C"), [("abc", "def", "ghi")]))
    assert sorted("".join(page.split())) == sorted("ABC" + "abcdefghi")


def test_only_terminals_with_colour_enabled_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(("A", "B"), [("1", "2")], ("cyan",))
    plain = rendered(Line("x", "bold red"), made)
    assert "\x1b" not in plain
    monkeypatch.setattr(tables, "wants_colour", lambda stream: True)
    coloured = rendered(Line("x", "bold red"), made)
    assert coloured.splitlines()[0] == "\x1b[1;31mx\x1b[0m"
    assert "\x1b[36m1\x1b[0m" in coloured
    assert _SEQUENCE.sub("", coloured) == plain


def test_control_characters_are_shown_and_tabs_are_spaces() -> None:
    page = rendered(Line("a\tb\x07\nc"), table(("A", "B"), [("\x1b[2J", "x\ty")]))
    assert page.splitlines() == ["a       b\\x07", "c", "A        B", "\\x1b[2J  x       y"]


@pytest.mark.machine
def test_ten_thousand_rows_take_less_than_half_a_second_of_cpu() -> None:
    rows = [(f"rank {n}", f"run-node-0-{n}", "kwok-3", "Running", "", "", "loss 0.31") for n in range(10_000)]
    began = time.thread_time()
    rendered(table(("Who", "Pod", "Node", "State", "Restarts", "Ended", "Last line"), rows, ("cyan",)))
    assert time.thread_time() - began < 0.5
