"""Output to terminals and pipes: colours, prefixes, broken pipes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from stepset.errors import InfrastructureError
from stepset.watch.present.sources import prefix

# Colours of the ranks, repeated after the last; 31 (red) is reserved for failures.
_RANK_COLOURS = ("36", "32", "33", "35", "34", "96", "92", "93", "95", "94")


def is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal that understands control sequences."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"


def wants_colour(stream: object) -> bool:
    """Whether to colour the output to a stream (https://no-color.org: not if NO_COLOR is set and not empty)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, colour: str, on: bool) -> str:
    """`text` in an ANSI colour such as "31" or "1;32", if `on`."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on else text


def source_colour(source: str) -> str:
    """The colour of a source's prefix: one per rank, dim for all other sources."""
    kind, _, number = source.partition(" ")
    return _RANK_COLOURS[int(number) % len(_RANK_COLOURS)] if kind == "rank" and number.isdigit() else "2"


def source_prefix(source: str, on: bool) -> str:
    """The text before each line of a source.

    >>> source_prefix("launcher", False)
    '[launcher] '
    """
    return f"{painted(prefix(source), source_colour(source), on)} "


def replace_closed_streams() -> None:
    """Opens /dev/null for each standard stream that the caller closed (`stepset ... >&-`).

    Otherwise the next file or pipe to be opened would get its number, and receive what is printed for the user.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open to the end


def binary(stream: object) -> BinaryIO:
    """Returns the binary stream of a text stream, to which any text can be written in every locale."""
    buffer: BinaryIO = stream.buffer  # type: ignore[attr-defined]  # every standard stream has one
    return buffer


def write_out(text: str) -> None:
    """Writes text to stdout as UTF-8; does nothing if the reader has closed stdout.

    Raises:
        InfrastructureError: the text cannot be written for another reason.
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


def print_message(text: str) -> None:
    """Writes lines of stepset's own to stderr; does nothing if the reader has closed stderr."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _redirect_to_devnull(sys.stderr)


def close_stdout() -> None:
    """Points stdout at /dev/null, so that the interpreter's last flush does not fail again."""
    _redirect_to_devnull(sys.stdout)


def _redirect_to_devnull(stream: TextIO) -> None:
    # Source: Python documentation, library/signal "Note on SIGPIPE".
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
