"""Reports an error to the user, with one line on stderr for each problem."""

from __future__ import annotations

import os
import traceback

from stepset.cli.output.terminal import print_message
from stepset.exit_code import ExitCode
from stepset.printable import printable, printable_text


def report(error: BaseException, text: str, code: ExitCode) -> int:
    """Prints each line of `text` as `stepset: ...` on stderr, and returns `code`.

    If the environment variable STEPSET_DEBUG is 1, also prints the traceback.
    """
    if os.environ.get("STEPSET_DEBUG", "") not in ("", "0"):
        print_message(printable_text("".join(traceback.format_exception(error)).rstrip()))
    for line in text.split("\n"):
        print_message(f"stepset: {printable(line)}")
    return int(code)
