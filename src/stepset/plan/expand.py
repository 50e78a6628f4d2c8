"""`$(NAME)` in variables and commands, expanded exactly as Kubernetes does, for runs without Kubernetes.

Source: kubernetes v1.36 third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with `$(NAME)` replaced where NAME is known, `$$` by `$`, and anything else left alone.

    >>> expand("$(A)-$(B)-$$(A)", {"A": "1"})
    '1-$(B)-$(A)'
    """

    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return variables.get(name, match.group(0))

    return _REFERENCE.sub(one, text)
