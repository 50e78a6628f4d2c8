"""Expands `$(NAME)` in variables and commands exactly as Kubernetes does, for runs without Kubernetes.

Source: kubernetes v1.36 third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ESCAPE = re.compile(r"\$\$")


class Reference(NamedTuple):
    """A place in a text: `$(NAME)`, or `$$`, which has no name and stands for `$`."""

    start: int
    end: int
    name: str | None


def references(text: str) -> Iterator[Reference]:
    """Yields the references in a text, in their order, in time proportional to its length."""
    # No reference ends after the last `)`; without this limit the regex scans to the end of the text for each `$(`.
    closed = text.rfind(")") + 1
    for found in _REFERENCE.finditer(text, 0, closed):
        yield Reference(*found.span(), found.group(1))
    for found in _ESCAPE.finditer(text, closed):
        yield Reference(*found.span(), None)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Returns `text` with `$(NAME)` replaced if NAME is known, and `$$` by `$`; the rest is unchanged.

    >>> expand("$(A)-$(B)-$$(A)", {"A": "1"})
    '1-$(B)-$(A)'
    """
    parts, last = [], 0
    for start, end, name in references(text):
        parts += [text[last:start], "$" if name is None else variables.get(name, text[start:end])]
        last = end
    return "".join((*parts, text[last:]))
