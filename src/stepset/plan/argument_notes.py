"""Notes about arguments of a job that the program probably cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_OPTION_AND_VALUE = re.compile(r"(--?[A-Za-z][\w-]*)\s+(?=\S)")


def argument_notes(args: Sequence[object]) -> Iterator[str]:
    """Yields a note if an argument is an option and its value in one string. The note contains no value.

    >>> list(argument_notes(["--lr 0.1", "--name=a b", "-"]))
    ["args[0]: '--lr' and its value are one argument; write them as two items of the list"]
    """
    for index, each in enumerate(args):
        if isinstance(each, str) and (found := _OPTION_AND_VALUE.match(each)):
            yield f"args[{index}]: {found[1]!r} and its value are one argument; write them as two items of the list"
            return
