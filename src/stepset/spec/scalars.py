"""Scalars of a job file whose value does not read back as the text that the user wrote.

YAML reads `1.10` as 1.1, `017` as 15, `12:30` as 750 and `yes` as true, and JSON reads `1e3` as 1000.0. A field that is
a number or a switch takes such a value; a field that is text rejects it and shows the quoted form.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

# Octal, hexadecimal and binary numbers, and numbers of base 60: YAML 1.1 and 1.2 read them differently.
_NOT_DECIMAL = re.compile(r"[+-]?0[0-9_xXbBoO]|.*:", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Scalar:
    """A value of a YAML or JSON text, together with its source.

    Args:
        value: a boolean, a number or a date.
        source: the text in the file.
        quoted: how the user writes it as text; default: the source in quotes.
    """

    value: Any
    source: str
    quoted: str = ""

    def __repr__(self) -> str:
        """Returns the source, which messages show."""
        return self.source


def scalar(value: Any, source: str) -> Any:
    """Returns `value` if it reads back as its source, else a Scalar.

    >>> scalar(8, "8"), scalar(1.1, "1.10")
    (8, 1.10)
    """
    return value if text_of(value) == source else Scalar(value, source)


def text_of(value: Any) -> str | None:
    """Returns a boolean or a number as the text that YAML has for it; None for other values."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else None


def plain(value: Any) -> Any:
    """Returns the value of a Scalar; returns other values unchanged."""
    return value.value if isinstance(value, Scalar) else value


def number(value: Any) -> Any:
    """Returns the value of a Scalar in a numeric field; returns other values unchanged.

    Raises:
        ValueError: the number is not decimal, such as 017 (octal in YAML 1.1, not in YAML 1.2) or 12:30 (base 60).
    """
    if isinstance(value, Scalar) and text_of(value.value) and _NOT_DECIMAL.match(value.source):
        raise ValueError(f"{value.source} is read as {value.value}; write a decimal number")
    return plain(value)


def as_text(value: Any) -> Any:
    """Returns a boolean or a number as text; returns other values unchanged, for the model to accept or reject.

    Raises:
        ValueError: the text would not be the one in the file.
    """
    if isinstance(value, Scalar) and not reads_back(value):
        raise ValueError(not_text(value))
    return value if (text := text_of(plain(value))) is None else text


def reads_back(value: Any) -> bool:
    """Whether a boolean or a number, as text, is the text that the user wrote; False for other values."""
    text = text_of(plain(value))
    return text is not None and (not isinstance(value, Scalar) or value.source == text)


def not_text(value: Any) -> str:
    """Returns what is wrong with a value of a field that is text, and how to write it.

    >>> not_text(Scalar(1.1, "1.10"))
    '1.10 is read as 1.1; write "1.10"'
    >>> not_text(True)
    'true is not text; write "true"'
    """
    if value is None:
        return 'is null; write "" for an empty text'
    inner = plain(value)
    read = "a date" if isinstance(inner, datetime.date) else text_of(inner)
    if read is None:
        return f"{shortened(repr(value))} is not text; write one text"
    source = value.source if isinstance(value, Scalar) else str(inner)
    if isinstance(value, bool):
        source = read
    quoted = (isinstance(value, Scalar) and value.quoted) or json.dumps(source, ensure_ascii=False)
    found = "is not text" if read == source else f"is read as {shortened(read)}"
    return f"{shortened(source)} {found}; write {shortened(quoted)}"


def not_a_list(text: str) -> str:
    """Returns the message about a command that is one text; it shows the list of words into which a shell splits it.

    >>> not_a_list("python 'a b.py'")
    '"python \'a b.py\'" is text, not a list; write ["python", "a b.py"]'
    """
    try:
        words = shlex.split(text) or [text]
    except ValueError:  # a quote without an end
        words = [text]
    return f"{shortened(repr(text))} is text, not a list; write {json.dumps(words, ensure_ascii=False)}"


def shortened(text: str) -> str:
    """Returns the beginning of a long text, for a message."""
    return text if len(text) <= 80 else f"{text[:77]}..."
