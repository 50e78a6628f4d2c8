"""Text of foreign origin before a terminal or a page: `stepset.printable`."""

from __future__ import annotations

import doctest
import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepset import printable as module
from stepset.errors import InfrastructureError
from stepset.printable import printable, printable_json, printable_line, printable_text
from tests.fuzzing import FUZZED

ESC = "\x1b"
COLOUR = re.compile(ESC + r"\[[0-9;:]*m")
IGNORABLE = re.compile(  # Default_Ignorable_Code_Point, Mn and Lo; the others have one of the categories of is_safe
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
VARIANT = re.compile(
    "[0-9#*]\ufe0f\u20e3|[\xa9-\u115e\u1161-\u3163\u3165-\uffff\U00010000-\U0003ffff]" + IGNORABLE.pattern
)
BIDIRECTIONAL = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = st.text(
    st.one_of(
        st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")),
        st.sampled_from("\u034f\u115f\u3164\uffa0\u180b\ufe0f\u2764\u180e\u1820\U000e0100\U000e0080\ufff0\u20e31"),
        st.sampled_from(f"{ESC}[]0;52cPX^_m\x07\x9b\x9d\x9c\x90\\\\\r\t\u200d\u200c{BIDIRECTIONAL}"),
        st.characters(),
    ),
    max_size=40,
)
LANGUAGES = [
    "na\u0308ive cafe\u0301",  # combining marks
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with the non-joiner that its spelling requires
    "\u0915\u094d\u200d\u0937",  # Hindi, with a joiner
    "\u05e9\u05dc\u05d5\u05dd 12",  # Hebrew
    "\u4f60\u597d\u3000\uff01",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f469\u200d\U0001f4bb \U0001f44d\U0001f3fd \u2764\ufe0f\u200d\U0001f525",  # emoji of several characters
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
    "\u0600\u0661\u0662",  # an Arabic number sign
    "1\ufe0f\u20e3 \u263a\ufe0e \u8fbb\U000e0100 \u1820\u180b\u1820",  # variants of characters
    "10\xa0%\t\u2009\ue0a0",
]


def is_safe(text: str) -> bool:
    """Whether a terminal shows every character of the text, in the order of its script."""
    joiners = re.sub("(?<=[^\x00-\u02ff])[\u180e\u200c\u200d](?=[^\x00-\u02ff])", "", text)
    flags = re.sub("\U0001f3f4[\U000e0030-\U000e007a]+\U000e007f", "", joiners)
    allowed = "\t\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    return all(
        unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        or char in allowed
        or "\U00013430" <= char <= "\U0001345f"
        for char in flags
    ) and not IGNORABLE.search(VARIANT.sub("", text))


def test_the_examples_are_correct() -> None:
    result = doctest.testmod(module)
    assert result.attempted >= 5
    assert result.failed == 0


@FUZZED
@given(HOSTILE)
@example(f"{ESC}]52;c;cm0gLXJm\x07")
@example("\x9d52;c;cm0gLXJm\x9c")
@example(f"{ESC}P$q{ESC}\\\\")
@example("a\u200db")
@example("\u200d\u200d")
@example("\u2028rank 0 succeeded\u2029")
@example("\udc80\ud800")
def test_no_character_controls_a_terminal_or_hides(text: str) -> None:
    shown = printable(text)
    assert is_safe(shown)
    assert printable(shown) == shown
    shown.encode()


@FUZZED
@given(HOSTILE)
@example(f"{ESC}{ESC}[0m[2J")
@example(f"{ESC}]0;{ESC}[31m\x07")
@example(f"{ESC}[{ESC}[31m2J")
@example(f"\r{ESC}]52;c;x")
def test_of_a_ranks_line_only_colours_remain(text: str) -> None:
    shown = printable_line(text)
    assert is_safe(COLOUR.sub("", shown))
    assert ESC not in shown or shown.endswith(f"{ESC}[0m")
    assert printable_line(shown) in (shown, f"{shown}{ESC}[0m")


@pytest.mark.parametrize("text", LANGUAGES)
def test_text_of_all_languages_remains(text: str) -> None:
    assert printable(text) == printable_line(text) == text


@FUZZED
@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cn", "Cs", "Zl", "Zp"))))
def test_letters_marks_numbers_and_symbols_remain(text: str) -> None:
    text = IGNORABLE.sub("", text)
    assert printable(text) == printable_line(text) == text


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext", "plain\ttext"),
        ("\r 10%|#   |\r 50%|##  |\r100%|####|", "100%|####|"),
        ("done\r", "done"),
        (f"{ESC}[32mgreen{ESC}[0m", f"{ESC}[32mgreen{ESC}[0m{ESC}[0m"),
        (f"{ESC}[31mred without end", f"{ESC}[31mred without end{ESC}[0m"),
        (f"{ESC}[38;5;8mgrey", f"{ESC}[38;5;8mgrey{ESC}[0m"),
        (f"{ESC}[38;2;8;5;6mdark", f"{ESC}[38;2;8;5;6mdark{ESC}[0m"),
        (f"{ESC}[38;8mconcealed {ESC}[48;9;8mtoo{ESC}[38m {ESC}[58;2;1;2m", "concealed too "),
        (f"{ESC}[38:2::1:2:3mred", f"{ESC}[38:2::1:2:3mred{ESC}[0m"),
        (f"{ESC}[8mconcealed {ESC}[1;05mblinking", "concealed blinking"),
        (f"up{ESC}[A and clear{ESC}[2K", "up and clear"),
        (f"{ESC}]0;title\x07text", "text"),
        (f"{ESC}]52;c;cm0gLXJm\x07text", "text"),
        (f"{ESC}]8;;http://x{ESC}\\link{ESC}]8;;{ESC}\\", "link"),
        (f"{ESC}Pq#0~~{ESC}\\sixel {ESC}_G{ESC}\\kitty", "sixel kitty"),
        ("be\x07ll \x08back \x00nul \x9b31mC1", "bell back nul C1"),
        (f"cut {ESC}", "cut "),
        ("loss\u202e52.0", "loss\\u202e52.0"),
        ("pass\u115fword \ufe00\u3164", "pass\\u115fword \\ufe00\\u3164"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_finally_show_it(printed: str, shown: str) -> None:
    assert printable_line(printed) == shown


@FUZZED
@given(HOSTILE)
def test_json_is_printable_and_means_the_same(text: str) -> None:
    written = json.dumps({"a": [text]}, ensure_ascii=False, indent=2)
    shown = printable_json(written)
    assert is_safe(shown.replace("\n", ""))
    assert json.loads(shown) == json.loads(written)


def test_an_errors_message_is_printable_lines() -> None:
    error = InfrastructureError(f"the server answered {ESC}]52;c;x\x07\u202e\nsecond line")
    assert str(error) == "the server answered \\x1b]52;c;x\\x07\\u202e\nsecond line"
    assert printable_text(str(error)) == str(error)
