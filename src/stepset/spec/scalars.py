"""`Scalar`, which represents a value that the parser of the job file has converted.

For example, YAML reads `1.10` as 1.1, `017` as 15, `12:30` as 750 and `yes` as true. JSON reads `1e3` as 1000.0. Fields
for numbers or booleans accept such values. Fields for strings reject them, and the error message advises the user to
write the value in quotes.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

# Matches octal, hexadecimal, binary and base 60 numbers. YAML 1.1 and YAML 1.2 read such numbers differently.
_NOT_DECIMAL = re.compile(r"[+-]?0[0-9_xXbBoO]|.*:", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Scalar:
    """A value of a YAML or JSON file, together with its original text.

    Args:
        value: the value that the parser returns. This is a boolean, a number or a date.
        source: the characters in the file.
        quoted: the characters that the user must write to get a string instead. The default is `source` in quotes.
    """

    value: Any
    source: str
    quoted: str = ""

    def __repr__(self) -> str:
        """Returns the characters in the file, for error messages."""
        return self.source


def scalar(value: Any, source: str) -> Any:
    """Returns `value` if its YAML form is `source`. Otherwise, returns a `Scalar` with `value` and `source`.

    >>> scalar(8, "8"), scalar(1.1, "1.10")
    (8, 1.10)
    """
    return value if text_of(value) == source else Scalar(value, source)


def text_of(value: Any) -> str | None:
    """Converts a boolean or a number to a string in the form of YAML. Returns None for values of other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else None


def plain(value: Any) -> Any:
    """Returns `Scalar.value` if `value` is a `Scalar`. Other values are returned unchanged."""
    return value.value if isinstance(value, Scalar) else value


def number(value: Any) -> Any:
    """Converts the value of a numeric field. Returns `Scalar.value` if `value` is a `Scalar`.

    Other values are returned unchanged.

    Raises:
        ValueError: the number is not decimal, such as 12:30 (base 60) or 017 (octal in YAML 1.1).
    """
    if isinstance(value, Scalar) and text_of(value.value) and _NOT_DECIMAL.match(value.source):
        raise ValueError(f"{value.source} is read as {value.value}; write a decimal number")
    return plain(value)


def as_text(value: Any) -> Any:
    """Converts the value of a field that requires a string. Booleans and numbers are converted to strings.

    Other values are returned unchanged. The model then accepts or rejects them.

    Raises:
        ValueError: the result would differ from the characters in the file.
    """
    if isinstance(value, Scalar) and not reads_back(value):
        raise ValueError(not_text(value))
    return value if (text := text_of(plain(value))) is None else text


def reads_back(value: Any) -> bool:
    """Returns whether a boolean or a number, converted to a string, equals the characters in the file.

    For values of other types, the result is False.
    """
    text = text_of(plain(value))
    return text is not None and (not isinstance(value, Scalar) or value.source == text)


def not_text(value: Any) -> str:
    """Returns an error message for a value that is not a string. The message contains the correct form.

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
    r"""Returns an error message for a command that is a string instead of a list.

    The message contains the list of the words in the command. The words are separated as in a shell. If the string is
    the text of a list, the message contains this list.

    >>> not_a_list("python 'a b.py'")
    '"python \'a b.py\'" is text, not a list; write ["python", "a b.py"]'
    >>> not_a_list("['a', 1]")
    '"[\'a\', 1]" is text, not a list; write ["a", "1"]'
    """
    return f"{shortened(repr(text))} is text, not a list; write {json.dumps(words_of(text), ensure_ascii=False)}"


def words_of(text: str) -> list[str]:
    """Returns the list that `not_a_list` suggests instead of a string."""
    collection = collection_in(text)
    try:
        return [str(each) for each in collection] if isinstance(collection, list) else shlex.split(text) or [text]
    except ValueError:  # a closing quote is missing
        return [text]


def collection_in(text: str) -> list[Any] | dict[Any, Any] | None:
    """Returns the list or the mapping that a string is the text of, in Python or in JSON. Returns None for other texts.

    >>> collection_in("['--a', '1']"), collection_in('{"a": true}'), collection_in("--a 1")
    (['--a', '1'], {'a': True}, None)
    """
    if not text.strip().startswith(("[", "{")):
        return None
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found = read(text.strip())
            return found if isinstance(found, (list, dict)) else None
    return None


def shortened(text: str) -> str:
    """Shortens a string to 80 characters for a message. The end of a longer string is replaced with `...`."""
    return text if len(text) <= 80 else f"{text[:77]}..."
