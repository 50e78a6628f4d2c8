"""Text of any origin in HTML."""

from __future__ import annotations

from html import escape

from stepset.printable import printable_text


def escaped(text: str) -> str:
    """Returns printable text as HTML: bidirectional characters would reorder what the page states.

    >>> escaped("<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    return escape(printable_text(text))
