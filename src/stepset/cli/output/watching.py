"""Prints the output of `stepset status --watch`: the state of a run after each change."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from stepset.cli.output.documents import run_document
from stepset.cli.output.formats import as_json
from stepset.cli.output.status_page import status_page
from stepset.cli.output.terminal import is_terminal, write_out
from stepset.printable import printable
from stepset.run_status import RunStatus
from stepset.watch.present.sentences import counted, state_line

_INTERVAL = 1.0
"""Seconds between two requests for the state."""
_HOME, _CLEAR, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"


def watch_run(status: RunStatus, read: Callable[[], RunStatus], output: str, flags: str) -> None:
    """Shows the state of a run until the run is finished or the reader closes the output.

    Args:
        status: the current state.
        read: a function that reads and returns the current state.
        output: the format, text or json.
        flags: the flags that select the run's backend and cluster (`BackendArgs.as_flags`).
    """
    on_terminal = output == "text" and is_terminal(sys.stdout)
    if on_terminal:
        write_out(_CLEAR)
    shown = ""
    while True:
        text = _screen(status, flags) if on_terminal else _change(status, output)
        if text != shown and not write_out(text):
            return
        shown = text
        if status.phase.final:
            return
        time.sleep(_INTERVAL)
        status = read()


def _change(status: RunStatus, output: str) -> str:
    if output == "json":
        return as_json(run_document(status), indent=None)
    return f"{printable(status.name)}: {printable(state_line(status))}\n"


def _screen(status: RunStatus, flags: str) -> str:
    """Returns a string that draws the status page at the top of the screen.

    If the page has more lines than the screen, the last line states the number of hidden lines.
    """
    lines = status_page(status, flags).splitlines()
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room and not status.phase.final:
        hidden = len(lines) - room + 1
        more = f"{counted(hidden, 'line')} below; stepset status {printable(status.name)} shows all"
        lines = [*lines[: room - 1], more]
    return _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW
