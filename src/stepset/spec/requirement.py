"""Checks the syntax of requirements. A requirement is the name of a Python package, with a version (PEP 508).

The check does not use a package index.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from stepset.spec.base import TextList, validation_error

MAX_REQUIREMENTS = 200
"""The maximum number of requirements. There is a limit because a pod gets all requirements in one argument."""
_MAX_LENGTH = 500
"""The maximum length of a requirement, in characters."""

_VERSION = r"(?:~=|===|==|!=|<=|>=|<|>)\s*[^\s,;()<>=!~@\[\]]+"
_VERSIONS = rf"{_VERSION}(?:\s*,\s*{_VERSION})*\s*,?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EXTRAS = r"(?:\[[A-Za-z0-9._, -]*\])?"
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*{_EXTRAS}\s*(?:@\s*[A-Za-z][A-Za-z0-9+.-]*:[^\s;]+(?:\s+;.*\S.*)?"
    rf"|(?:{_VERSIONS}|\(\s*{_VERSIONS}\s*\))?\s*(?:;.*\S.*)?)"
)
_CREDENTIALS = re.compile(r"@\s*[A-Za-z][A-Za-z0-9+.-]*://[^/\s]*@")


def requirement_problem(text: str) -> str | None:
    """Returns an error message about a requirement, or None if the requirement is valid.

    The error message does not contain the name of the field.

    >>> requirement_problem("rich>=13,<15")
    >>> requirement_problem("-r requirements.txt")
    "'-r requirements.txt' is an option of pip; write it like 'rich>=13,<15' (PEP 508)"
    """
    if len(text) > _MAX_LENGTH:
        return f"{text[:30]!r}... has {len(text)} characters; a requirement has at most {_MAX_LENGTH}"
    if _CREDENTIALS.search(text):
        return (
            "contains credentials, which all who may read the pods would see; use an index whose URL is in a Secret"
            " (env: {UV_DEFAULT_INDEX: {secret, key}})"
        )
    # Several spaces are replaced with one space, because the pattern is slow for many spaces.
    if text.isprintable() and _REQUIREMENT.fullmatch(re.sub(" +", " ", text)):
        return None
    what = "an option of pip" if text.startswith("-") else "not a requirement"
    return f"{text!r} is {what}; write it like 'rich>=13,<15' (PEP 508)"


def _check(given: list[str]) -> list[str]:
    kept = [text.strip() for text in given]
    if wrong := [((index,), problem) for index, text in enumerate(kept) if (problem := requirement_problem(text))]:
        raise validation_error(*wrong)
    return list(dict.fromkeys(kept))


RequirementList = Annotated[TextList, Field(max_length=MAX_REQUIREMENTS), AfterValidator(_check)]
"""A list of requirements. Duplicates are removed."""
