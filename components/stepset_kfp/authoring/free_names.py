"""Selects a name that is not in use."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count


def first_free(name: str, taken: Collection[str], separator: str = "-") -> str:
    """Returns `name`, or `name` with a number if `name` is in `taken`.

    The function tries the numbers 2, 3 and so on until the result is not in `taken`.

    >>> first_free("train", {"train", "train-2"})
    'train-3'
    """
    names = chain([name], (f"{name}{separator}{number}" for number in count(2)))
    return next(each for each in names if each not in taken)
