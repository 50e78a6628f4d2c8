"""Reports an error to the user: one line on stderr for each problem, and an exit code."""

from __future__ import annotations

import os
import traceback

from stepset.cli.output.terminal import print_message
from stepset.exit_code import ExitCode
from stepset.printable import printable, printable_text


def report(error: BaseException, text: str, code: ExitCode) -> int:
    """Prints `text` as `stepset: ...` lines on stderr; returns `code`. STEPSET_DEBUG=1 adds the traceback."""
    if os.environ.get("STEPSET_DEBUG", "") not in ("", "0"):
        print_message(printable_text("".join(traceback.format_exception(error)).rstrip()))
    for line in text.split("\n"):
        print_message(f"stepset: {printable(line)}")
    return int(code)
