"""Shortens strings to a number of terminal cells. A shortened string contains one `…`."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

_CUT = "…"


def cells(text: str) -> int:
    """Returns the width of a string in terminal cells. A wide character needs two cells."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """Returns a string without changes if it fits into `width` cells. Otherwise returns the beginning of the string.

    >>> cut("ValueError: bad batch", 12), cut("short", 12)
    ('ValueError:…', 'short')
    """
    if cells(text) <= width:
        return text
    return (fitting(text, width - 1).rstrip() + _CUT) if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """Returns a string without changes if it fits into `width` cells. Otherwise returns its beginning and its end.

    >>> cut_middle("train.py --epochs 30 --lr 0.1", 20)
    'train.py --e…-lr 0.1'
    """
    if cells(text) <= width:
        return text
    head = max(0, width - 1) * 2 // 3  # the beginning contains the name of the program
    tail = fitting(text[::-1], width - 1 - head)[::-1]
    return f"{fitting(text, head).rstrip()}{_CUT}{tail.lstrip()}" if width > 0 else ""


def fitting(text: str, width: int) -> str:
    """Returns the beginning of a string that fits into `width` cells.

    >>> fitting("epoch \u9032\u6357", 9)
    'epoch \u9032'
    """
    width = max(0, width)
    return text[:width] if text.isascii() else set_cell_size(text, width).rstrip(" ")
