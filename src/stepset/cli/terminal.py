"""What is safe and wanted on this output: colours, control characters, broken pipes. Used by everything that prints."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from stepset.errors import InfrastructureError
from stepset.watch.present.sources import prefix

# A distinct colour per rank, as long as there are some; 31 (red) is kept for failures.
_RANK_COLOURS = ("36", "32", "33", "35", "34", "96", "92", "93", "95", "94")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(  # ECMA-48; group 1 is what may stay
    r"""
    \x1b\] [^\x07\x1b]* (?:\x07|\x1b\\)?            # operating system commands: titles, links
    | (\x1b\[ [0-9;:]* m)                           # colours
    | \x1b (?: \[ [0-?]* [ -/]* [@-~]? | [^\[] )?   # all other sequences: they move the cursor or change modes
    | [\x00-\x08\x0b-\x1f\x7f-\x9f]                 # controls by themselves
    """,
    re.VERBOSE,
)


def is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal that understands control sequences."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"


def wants_colour(stream: object) -> bool:
    """Whether to colour what goes to a stream (https://no-color.org: NO_COLOR, when not empty, says no)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, colour: str, on: bool) -> str:
    """`text` in an ANSI colour such as "31" or "1;32", where `on`."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on else text


def source_colour(source: str) -> str:
    """The colour of a source's prefix: one per rank, dim for what is no rank."""
    kind, _, number = source.partition(" ")
    return _RANK_COLOURS[int(number) % len(_RANK_COLOURS)] if kind == "rank" and number.isdigit() else "2"


def source_prefix(source: str, on: bool) -> str:
    """What stands before each line of a source: coloured, where `on`.

    >>> source_prefix("launcher", False)
    '[launcher] '
    """
    return f"{painted(prefix(source), source_colour(source), on)} "


def printable(text: str) -> str:
    """`text` with every control character but the tab shown as an escape; for text that must stay one line.

    >>> printable("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda m: m.group().encode("unicode_escape").decode(), text.replace("\n", "\\n"))


def for_terminal(text: str) -> str:
    """A program's line as a terminal would end up showing it, colours kept.

    A progress bar overwrites its line with carriage returns: what it wrote last counts. Sequences that move the cursor
    are left out, because they would tear the lines of other ranks.

    >>> for_terminal("\\r 10%\\r 100%")
    ' 100%'
    """
    if not _CONTROL.search(text):
        return text
    last = next((part for part in reversed(text.split("\r")) if part), "")
    shown = _SEQUENCE.sub(lambda m: m.group(1) or "", last)
    return f"{shown}\x1b[0m" if "\x1b" in shown else shown


def replace_closed_streams() -> None:
    """Opens /dev/null where a standard stream was closed by the caller (`stepset ... >&-`).

    Else the next file or pipe that is opened would take its number, and what is meant for the user would go there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open to the end


def binary(stream: object) -> BinaryIO:
    """The bytes behind a text stream, so that any text can be written whatever the locale."""
    buffer: BinaryIO = stream.buffer  # type: ignore[attr-defined]  # every standard stream has one
    return buffer


def write_out(text: str) -> None:
    """Writes text to stdout as UTF-8; that the reader has gone (`stepset ... | head`) is no error.

    Raises:
        InfrastructureError: it cannot be written, because the disk is full, say.
    """
    try:
        sys.stdout.flush()
        out = binary(sys.stdout)
        out.write(text.encode(errors="replace"))
        out.flush()
    except BrokenPipeError:
        close_stdout()
    except OSError as error:
        close_stdout()
        raise InfrastructureError(f"the output cannot be written: {error.strerror or error}") from error


def say(text: str) -> None:
    """Writes lines of stepset's own to stderr; that nobody is there to read them changes nothing about the command."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _point_at_nothing(sys.stderr)


def close_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's last flush does not fail again."""
    _point_at_nothing(sys.stdout)


def _point_at_nothing(stream: TextIO) -> None:
    # Source: Python documentation, library/signal "Note on SIGPIPE".
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
