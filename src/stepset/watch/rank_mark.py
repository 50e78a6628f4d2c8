"""Removes the mark `[rank3]: ` that torch.distributed puts before the lines of a traceback. Contains pure functions."""

from __future__ import annotations

import re

_MARKED = re.compile(rb"^(\[rank (\d+)\] )\[rank\2\]: ?", re.MULTILINE)


def without_rank_mark(source: str, text: str) -> str:
    """Returns a line of a rank without torch's mark. The mark is redundant, because the prefix contains the rank.

    Source: torch 2.15, torch/distributed/distributed_c10d.py, `_distributed_excepthook`.

    >>> without_rank_mark("rank 3", "[rank3]: ValueError: bad batch")
    'ValueError: bad batch'
    >>> without_rank_mark("node 0", "[rank3]: ValueError: bad batch")
    '[rank3]: ValueError: bad batch'
    """
    mark = f"[{source.replace(' ', '')}]:"
    return text.removeprefix(mark).removeprefix(" ") if source.startswith("rank ") and text.startswith(mark) else text


def without_rank_marks(rows: bytes) -> bytes:
    r"""Returns complete rows `[source] text` without torch's marks.

    >>> without_rank_marks(b"[rank 1] [rank1]: ValueError\n[rank 1] [rank2]: x\n")
    b'[rank 1] ValueError\n[rank 1] [rank2]: x\n'
    """
    return _MARKED.sub(rb"\1", rows) if b"] [rank" in rows else rows  # `in` alone is much faster than the replacement
