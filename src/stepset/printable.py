"""Makes text of any origin safe to print. Every interface uses this module for text in a terminal, a log or a page.

A terminal executes control sequences. A control sequence can set the clipboard, move the cursor or change the title.
Invisible and bidirectional characters make a line look different from its content. The functions replace all these
sequences and characters by visible escapes.
"""

from __future__ import annotations

import re

_EMOJI_OR_IDEOGRAPHS = (
    "\xa9\xae\u1000-\u109f\u203c\u2049\u2100-\u2bff\u2e80-\u3163\u3165-\ud7ff\ue000-\ufaff"
    "\U00010ac0-\U00010aff\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
"""Characters that have variants in Unicode 16 (StandardizedVariants.txt, emoji-variation-sequences.txt, IVD)."""
_JOINABLE = (
    "\u0300-\u034e\u0350-\u061b\u061d-\u115e\u1161-\u17b3\u17b6-\u180a\u1810-\u1fff"
    "\u2190-\u2bff\u2c80-\u2dff\u3005-\u3163\u3165-\ud7ff\uf900-\ufdff\ufe20-\ufe2f\ufe70-\ufefe"
    "\U00010000-\U0001bc9f\U0001bca4-\U0001d172\U0001d17b-\U000dffff"
)
"""Emoji, and the letters and marks of all scripts except Latin. A joiner between two of these characters changes the
shape of the characters."""
_UNSAFE = re.compile(
    # The emoji of a region's flag, such as Scotland's. It contains tag characters and is not escaped.
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    "|[\x00-\x08\x0a-\x1f\x7f-\x9f"  # DEL, C1, and C0 except the tab
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of bidirectional text
    "\u2028\u2029"  # separators of lines and paragraphs
    # Zero-width characters: Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt). The variation
    # selectors and the joiners are not included here and follow below.
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
    "\ud800-\udfff]"  # surrogates: bytes that could not be decoded
    # Variation selectors. A selector is kept after a character that has variants, or after the digit of a keycap emoji.
    "|(?<![\u1820-\u18aa])[\u180b-\u180d\u180f]"
    f"|(?<![{_EMOJI_OR_IDEOGRAPHS}])(?!(?<=[0-9#*])\ufe0f\u20e3)[\ufe00-\ufe0f]"
    f"|(?<![{_EMOJI_OR_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
    # The joiners of Arabic, Indic scripts, Mongolian and emoji. A joiner is kept between two characters of _JOINABLE. A
    # variation selector may precede the joiner.
    f"|(?<![{_JOINABLE}])(?<![{_EMOJI_OR_IDEOGRAPHS}][\ufe00-\ufe0f])(?<![\u1820-\u18aa][\u180b-\u180d\u180f])"
    f"[\u180e\u200c\u200d]|[\u180e\u200c\u200d](?![{_JOINABLE}])"
)
_SEQUENCE = re.compile(  # ECMA-48
    r"""
    (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] ) [^\x07\x1b\x9c]* (?: \x07 | \x9c | \x1b\\ )?  # clipboard, titles, links
    | (\x1b\[ [0-9;:]{0,64} m)                                                               # colours
    | (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]?                                               # cursor, modes
    | \x1b [ -/]* [0-~]?                                                                     # character sets and others
    | [\x00-\x08\x0b-\x1f\x7f-\x9f]                                                          # controls by themselves
    """,
    re.VERBOSE,
)
_COLOUR_NUMBERS = {"5": 2, "2": 4}
_HIDING = frozenset({"5", "6", "8"})
"""The parameters of a colour sequence that make text blink or conceal text."""


def printable(text: str) -> str:
    """Returns `text` as one line in which control, invisible and bidirectional characters are escaped.

    These characters are escaped:

    - DEL, and the control characters C0 and C1 except the tab
    - the separators of lines and paragraphs
    - the marks, overrides and isolates of bidirectional text
    - zero-width characters
    - surrogates, which stand for bytes that could not be decoded

    The letters, marks and emoji of all languages are kept.

    >>> printable("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    >>> print(printable("gpj\\u202eexe."))
    gpj\\u202eexe.
    """
    return text if _is_plain(text) else _UNSAFE.sub(_escaped, text)


def printable_text(text: str) -> str:
    """Returns a text of several lines in which `printable` is applied to each line."""
    return text if _is_plain(text) else "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Returns an equivalent JSON text in which every character that `printable` escapes is written as a JSON escape.

    >>> print(printable_json('"a\x7f"'))
    "a\\u007f"
    """
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes the control characters C0
    return _UNSAFE.sub(lambda found: found.group() if found.group() == "\n" else _json_escaped(found), text)


def printable_line(text: str) -> str:
    """Returns a line of a program's output in the form that a terminal shows after the whole line was printed.

    A progress bar overwrites its line with carriage returns. Therefore only the last text of the line is kept.
    Control sequences other than colours are removed, because they would affect the lines of other ranks. Colours are
    kept, and are reset at the end of the line. All other characters are treated as in `printable`.

    >>> printable_line("\\r 10%\\r 100%")
    ' 100%'
    >>> printable_line("\\x1b[31mred\\x1b[2J")
    '\\x1b[31mred\\x1b[0m'
    """
    if not _UNSAFE.search(text):
        return text
    last = next((part for part in reversed(text.split("\r")) if part), "")
    shown, start = "", 0
    for found in _SEQUENCE.finditer(last):
        shown += printable(last[start : found.start()]) + _colour(found.group(1))
        start = found.end()
    shown += printable(last[start:])
    return f"{shown}\x1b[0m" if "\x1b" in shown else shown


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()  # str.isprintable also accepts zero-width characters


def _escaped(found: re.Match[str]) -> str:
    return found.group(1) or found.group().encode("unicode_escape").decode()


def _json_escaped(found: re.Match[str]) -> str:
    code = found.group().encode("utf-16-be", "surrogatepass").hex()
    return found.group(1) or "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def _colour(sequence: str | None) -> str:
    """Returns a colour sequence, or "" if the sequence is None or hides text."""
    if sequence is None:
        return ""
    words = [word.lstrip("0") for word in sequence[2:-1].replace(":", ";").split(";")]
    while words:
        word = words.pop(0)
        if word in ("38", "48", "58"):  # an extended colour, followed by 5 and an index, or by 2 and three numbers
            count = _COLOUR_NUMBERS.get(words[0] if words else "", 0)
            if not count or len(words) < count:
                return ""  # terminals differ in how many of the following numbers they skip
            del words[:count]
        elif word in _HIDING:
            return ""
    return sequence
