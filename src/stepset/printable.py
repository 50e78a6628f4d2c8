"""Makes text of any origin safe to print; every interface applies it to text for a terminal, a log or a page.

A terminal executes control sequences: they set the clipboard, move the cursor or change the title. Invisible and
bidirectional characters make a line read as something else. Both become visible escapes.
"""

from __future__ import annotations

import re

_JOINABLE = (
    "\u0300-\u1fff\u2190-\u2bff\u2c80-\u2dff\u3005-\ud7ff\uf900-\ufdff\ufe00-\ufe0f\ufe20-\ufe2f\ufe70-\ufefe"
    "\U00010000-\U000dffff"
)
"""Letters and marks of scripts other than Latin, and emoji: a joiner between two of them changes their shape."""
_UNSAFE = re.compile(
    # The emoji of a region's flag, such as Scotland's. It contains tag characters and is not escaped.
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    "|[\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 without the tab, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of bidirectional text
    "\u2028\u2029"  # separators of lines and paragraphs
    "\xad\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # without a width
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "\ud800-\udfff]"  # surrogates: bytes that could not be decoded
    # The joiners of Arabic, Indic scripts, Mongolian and emoji, unless they are between two characters of _JOINABLE.
    f"|(?<![{_JOINABLE}])[\u180e\u200c\u200d]|[\u180e\u200c\u200d](?![{_JOINABLE}])"
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
_HIDING = frozenset({"5", "6", "8"})
"""Parameters of a colour sequence that blink or conceal text."""


def printable(text: str) -> str:
    """Returns `text` as one line in which control, invisible and bidirectional characters are escaped.

    Escaped are the controls of C0 and C1 except the tab, DEL, separators of lines and paragraphs, the marks, overrides
    and isolates of bidirectional text, characters without a width, and surrogates, which stand for bytes that could not
    be decoded. The letters, marks and emoji of all languages remain.

    >>> printable("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    >>> print(printable("gpj\\u202eexe."))
    gpj\\u202eexe.
    """
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def printable_text(text: str) -> str:
    """Returns a text of several lines with `printable` applied to each."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Returns an equivalent JSON text, with a JSON escape for each character that `printable` escapes.

    >>> print(printable_json('"a\x7f"'))
    "a\\u007f"
    """
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes the controls of C0
    return _UNSAFE.sub(lambda found: found.group() if found.group() == "\n" else _json_escaped(found), text)


def printable_line(text: str) -> str:
    """Returns a line of a program's output in the form that a terminal would finally show, with its colours.

    A progress bar overwrites its line with carriage returns, so only what it wrote last is kept. Control sequences
    other than colours are removed, because they would affect the lines of other ranks; colours end with the line.
    Everything else is as in `printable`.

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


def _escaped(found: re.Match[str]) -> str:
    return found.group(1) or found.group().encode("unicode_escape").decode()


def _json_escaped(found: re.Match[str]) -> str:
    code = found.group().encode("utf-16-be", "surrogatepass").hex()
    return found.group(1) or "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def _colour(sequence: str | None) -> str:
    """Returns a colour sequence unless it hides text; "" for None."""
    if sequence is None:
        return ""
    words = [word.lstrip("0") for word in sequence[2:-1].replace(":", ";").split(";")]
    while words:
        word = words.pop(0)
        if word in ("38", "48", "58") and words:  # the numbers of an extended colour
            del words[: 2 if words[0] == "5" else 4]
        elif word in _HIDING:
            return ""
    return sequence
