"""Writes output to terminals and pipes. Handles colours, prefixes of lines and broken pipes."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import BinaryIO, TextIO

from stepset.errors import InfrastructureError
from stepset.exit_code import ExitCode
from stepset.printable import printable, printable_text
from stepset.watch.present.sources import prefix

# The colours of the ranks. After the last colour, the first colour is used again. Red (31) is reserved for failures.
_RANK_COLOURS = ("36", "32", "33", "35", "34", "96", "92", "93", "95", "94")


def is_terminal(stream: object) -> bool:
    """Returns whether a stream is a terminal that supports control sequences."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"


def wants_colour(stream: object) -> bool:
    """Returns whether the output to a stream is coloured.

    If the variable NO_COLOR is set and not empty, the output is not coloured (https://no-color.org).
    """
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, colour: str, on: bool) -> str:
    """Returns `text` in an ANSI colour such as "31" or "1;32" if `on` is true; otherwise returns `text` unchanged."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on else text


def source_colour(source: str) -> str:
    """Returns the colour of the prefix of a source. Each rank has a colour. The prefixes of other sources are dim."""
    kind, _, number = source.partition(" ")
    return _RANK_COLOURS[int(number) % len(_RANK_COLOURS)] if kind == "rank" and number.isdigit() else "2"


def source_prefix(source: str, on: bool) -> str:
    """Returns the prefix of each line of a source.

    >>> source_prefix("launcher", False)
    '[launcher] '
    """
    return f"{painted(prefix(source), source_colour(source), on)} "


def replace_closed_streams() -> None:
    """Opens /dev/null for each standard stream that the caller has closed (`stepset ... >&-`).

    Without this function, the next opened file or pipe would get the file descriptor of the closed stream. Then stepset
    would write its output to this file or pipe.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open to the end


def binary(stream: object) -> BinaryIO:
    """Returns the binary stream of a text stream. The output to a binary stream does not depend on the locale."""
    buffer: BinaryIO = stream.buffer  # type: ignore[attr-defined]  # every standard stream has one
    return buffer


def write_out(text: str) -> bool:
    """Writes text to stdout as UTF-8. Returns False if the reader has closed stdout.

    Raises InfrastructureError if the text cannot be written for another reason.
    """
    try:
        sys.stdout.flush()
        out = binary(sys.stdout)
        out.write(text.encode(errors="replace"))
        out.flush()
    except BrokenPipeError:
        close_stdout()
        return False
    except OSError as error:
        close_stdout()
        raise InfrastructureError(f"the output cannot be written: {error.strerror or error}") from error
    return True


def print_message(text: str) -> None:
    """Writes one of stepset's own messages to stderr as UTF-8. Write errors are ignored."""
    try:
        sys.stderr.flush()
        out = binary(sys.stderr)
        out.write(f"{text}\n".encode(errors="replace"))
        out.flush()
    except OSError:
        _redirect_to_devnull(sys.stderr)


def print_line(text: str) -> None:
    """Writes `stepset: TEXT` to stderr. The text is made printable."""
    print_message(f"stepset: {printable(text)}")


def close_stdout() -> None:
    """Redirects stdout to /dev/null. Otherwise the interpreter would flush stdout at exit, and fail again."""
    _redirect_to_devnull(sys.stdout)


def _redirect_to_devnull(stream: TextIO) -> None:
    # The Python documentation recommends this method (library/signal, "Note on SIGPIPE").
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def report(error: BaseException, text: str, code: ExitCode) -> int:
    """Prints each line of `text` as `stepset: ...` on stderr, and returns `code`.

    If the environment variable STEPSET_DEBUG is 1, also prints the traceback.
    """
    if os.environ.get("STEPSET_DEBUG", "") not in ("", "0"):
        print_message(printable_text("".join(traceback.format_exception(error)).rstrip()))
    for line in text.split("\n"):
        print_line(line)
    return int(code)


def make_log_printable() -> None:
    """Escapes control characters in the messages and tracebacks that the backends log, if no handler is configured.

    Python's last-resort handler then prints them to stderr. They may contain strings from servers.
    """
    import logging

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable_text(super().format(record))

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Formatter())
