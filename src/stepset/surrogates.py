"""Replaces lone surrogates, because text that contains lone surrogates cannot be encoded.

Every DAG file that imports the Airflow provider also imports this module.
"""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Returns the text with U+FFFD instead of each lone surrogate. No text encoding can express lone surrogates."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
