"""Escapes text of any origin for HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stepset.printable import printable_text


def escaped(text: str) -> str:
    """Escapes a text for HTML, and makes the text printable.

    For example, bidirectional characters are escaped, because they could reorder the text of the page.

    >>> escaped("<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    return escape(printable_text(text))


def text_cell(lines: Sequence[str]) -> str:
    """Returns a table cell with lines of text. Several lines are preformatted."""
    text = escaped("\n".join(lines))
    return f'<td class="text">{f"<pre>{text}</pre>" if len(lines) > 1 else text}</td>'


def titled_row(title: str, lines: Sequence[str]) -> str:
    """Returns a row of a table: a title, and a cell with lines of text."""
    return f"<tr><th>{escaped(title)}</th>{text_cell(lines)}</tr>"
