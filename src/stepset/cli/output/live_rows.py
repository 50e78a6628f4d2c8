"""The rows at the bottom of a terminal that are drawn again in place: incomplete lines of ranks, and the status."""

from __future__ import annotations

import shutil
import unicodedata
from itertools import accumulate

from stepset.cli.output.terminal import painted, source_colour
from stepset.printable import printable
from stepset.watch.lines import OpenLine
from stepset.watch.present.sources import prefix, shown_text


class LiveRows:
    """The newest state of each source's incomplete line."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour
        self._open: dict[str, OpenLine] = {}

    def update(self, line: OpenLine) -> None:
        """Replaces the state of the source's incomplete line."""
        self._open[line.source] = line

    def complete(self, source: str) -> None:
        """Removes the row of a source whose line is complete."""
        self._open.pop(source, None)

    def clear(self) -> None:
        """Removes all rows, because a new attempt begins."""
        self._open.clear()

    def text(self, status_line: str) -> str:
        """The rows without a last line end, each cut to the terminal's width; at most half of the terminal."""
        width, height = shutil.get_terminal_size()
        known = self._open.copy()  # other threads update the rows
        shown = sorted(known.values(), key=_order)[: max(1, height // 2)]
        rows = [self._row(line, width - 1) for line in shown]
        if status_line:
            rows.append(painted(_cut(printable(status_line), width - 1), "7", self._colour))
        return "\n".join(rows)

    def _row(self, line: OpenLine, width: int) -> str:
        head = prefix(line.source)
        text = _cut(printable(shown_text(line).strip("\r").replace("\t", " ")), width - len(head) - 1)
        return f"{painted(head, source_colour(line.source), self._colour)} {text}"


def clear(drawn: str) -> str:
    """The control sequences that remove what was drawn, if the cursor is at its end."""
    if not drawn:
        return ""
    above = drawn.count("\n")
    return f"\r\x1b[{above}A\x1b[J" if above else "\r\x1b[K"


def _cut(text: str, columns: int) -> str:
    """Returns the part of a text that fits: a longer row would wrap, and `clear` would not remove it.

    >>> _cut("epoch \u9032\u6357", 9)
    'epoch \u9032'
    """
    if text.isascii():
        return text[: max(0, columns)]
    ends = accumulate(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
    return text[: sum(end <= columns for end in ends)]


def _order(line: OpenLine) -> tuple[str, int, str]:
    word, _, number = line.source.partition(" ")
    return word, int(number) if number.isdecimal() else 0, line.source
