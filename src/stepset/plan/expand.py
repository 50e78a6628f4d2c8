"""Expands `$(NAME)` in variables and commands exactly as Kubernetes does, for runs without Kubernetes.

Source: kubernetes v1.36 third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Returns `text` with `$(NAME)` replaced if NAME is known, and `$$` by `$`; the rest is unchanged.

    >>> expand("$(A)-$(B)-$$(A)", {"A": "1"})
    '1-$(B)-$(A)'
    """

    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(one, text)
