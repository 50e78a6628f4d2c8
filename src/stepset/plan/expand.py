"""Expands `$(NAME)` in variables and commands by the rules of Kubernetes, for runs without Kubernetes.

Source: kubernetes v1.36 third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ESCAPE = re.compile(r"\$\$")


class Reference(NamedTuple):
    """A part of a string that Kubernetes replaces. The part is either `$(NAME)` or an escaped dollar sign, `$$`.

    Args:
        start: the index of the first character in the string.
        end: the index after the last character in the string.
        name: the name of the variable. None if the part is `$$`.
    """

    start: int
    end: int
    name: str | None


def references(text: str) -> Iterator[Reference]:
    """Yields the references in a string from left to right."""
    # No reference `$(NAME)` ends after the last `)`. Without this limit, the regular expression would scan to the end
    # of the string for each `$(`, which takes quadratic time.
    closed = text.rfind(")") + 1
    for found in _REFERENCE.finditer(text, 0, closed):
        yield Reference(*found.span(), found.group(1))
    for found in _ESCAPE.finditer(text, closed):
        yield Reference(*found.span(), None)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces each `$(NAME)` in a string with the value of the variable NAME. Replaces each `$$` with `$`.

    If `variables` does not contain NAME, `$(NAME)` stays unchanged.

    >>> expand("$(A)-$(B)-$$(A)", {"A": "1"})
    '1-$(B)-$(A)'
    """
    parts, last = [], 0
    for start, end, name in references(text):
        parts += [text[last:start], "$" if name is None else variables.get(name, text[start:end])]
        last = end
    return "".join((*parts, text[last:]))
