"""Reports an error to the user: one line on stderr for each problem, and an exit code."""

from __future__ import annotations

import os
import traceback

from stepset.cli.output.terminal import print_message, printable
from stepset.errors import ExitCode


def report(error: BaseException, text: str, code: ExitCode) -> int:
    """Prints `text` as `stepset: ...` lines on stderr, with STEPSET_DEBUG=1 after the traceback; returns `code`."""
    if os.environ.get("STEPSET_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    for line in text.splitlines():
        print_message(f"stepset: {printable(line)}")
    return int(code)
