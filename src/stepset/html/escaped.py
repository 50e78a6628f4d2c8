"""Escapes text of any origin for HTML."""

from __future__ import annotations

from html import escape

from stepset.printable import printable_text


def escaped(text: str) -> str:
    """Escapes a text for HTML, and makes the text printable.

    For example, bidirectional characters are escaped, because they could reorder the text of the page.

    >>> escaped("<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    return escape(printable_text(text))
