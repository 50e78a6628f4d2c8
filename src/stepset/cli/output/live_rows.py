"""Formats and removes the rows at the bottom of a terminal that are updated in place.

The rows show the incomplete lines of the ranks, and the status of the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from stepset.cli.output.shorten import fitting
from stepset.cli.output.terminal import painted, source_colour
from stepset.printable import printable
from stepset.watch.lines import OpenLine
from stepset.watch.present.sources import prefix, shown_text


def live_rows(lines: Mapping[str, OpenLine], status_line: str, *, colour: bool) -> str:
    """Returns a row for each incomplete line, separated by newlines. A `status_line` that is not empty is the last row.

    Each row is shortened to the width of the terminal, because `clear` would not remove a row that the terminal has
    wrapped. The rows of incomplete lines fill at most half of the terminal.

    Args:
        lines: the newest incomplete line of each source. An empty line has no row.
    """
    width, height = shutil.get_terminal_size()
    shown = sorted((line for line in lines.values() if line.text), key=_order)[: max(1, height // 2)]
    rows = [_row(line, width - 1, colour) for line in shown]
    if status_line:
        rows.append(painted(fitting(printable(status_line), width - 1), "7", colour))
    return "\n".join(rows)


def _row(line: OpenLine, width: int, colour: bool) -> str:
    head = prefix(line.source)
    text = fitting(printable(shown_text(line).strip("\r").replace("\t", " ")), width - len(head) - 1)
    return f"{painted(head, source_colour(line.source), colour)} {text}"


def clear(drawn: str) -> str:
    """Returns the control sequences to remove the string `drawn` from the terminal.

    The cursor must be at the end of `drawn`.
    """
    if not drawn:
        return ""
    above = drawn.count("\n")
    return f"\r\x1b[{above}A\x1b[J" if above else "\r\x1b[K"


def _order(line: OpenLine) -> tuple[str, int, str]:
    word, _, number = line.source.partition(" ")
    return word, int(number) if number.isdecimal() else 0, line.source
