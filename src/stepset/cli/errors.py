"""How an error reaches the user: one line on stderr for each thing that is wrong, and an exit code."""

from __future__ import annotations

import os
import traceback

from stepset.cli.terminal import printable, say
from stepset.errors import ExitCode


def report(error: BaseException, text: str, code: ExitCode) -> int:
    """Prints `text` as `stepset: ...` lines on stderr; with STEPSET_DEBUG=1 the chained cause before it.

    Returns:
        The exit code.
    """
    if os.environ.get("STEPSET_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    for line in text.splitlines():
        say(f"stepset: {printable(line)}")
    return int(code)
