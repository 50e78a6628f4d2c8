"""Decides which lines an interface shows, and formats these lines. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from stepset.errors import BadInputError
from stepset.run_status import LogLine
from stepset.watch.lines import OpenLine, without_rank_mark


def prefix(source: str) -> str:
    """Returns the prefix of a source's lines, without the space that follows the prefix.

    >>> prefix("rank 3")
    '[rank 3]'
    """
    return f"[{source}]"


def shown_text(line: LogLine | OpenLine) -> str:
    """Returns the text that follows the prefix of a line. torch's mark is removed, because it would repeat the prefix.

    >>> shown_text(LogLine("rank 1", "[rank1]: ValueError: bad batch"))
    'ValueError: bad batch'
    """
    return without_rank_mark(line.source, line.text)


def ranks_to_log(log_ranks: str | int | Iterable[int | str]) -> frozenset[int] | None:
    """Returns the ranks whose lines are shown.

    For `all`, returns None. For `failed`, returns an empty set, because the diagnosis contains the last lines of failed
    ranks. Other values are a number, numbers separated by commas, or an iterable of numbers.

    Raises:
        BadInputError: the value has another form.

    >>> sorted(ranks_to_log("0, 3")), ranks_to_log("all"), ranks_to_log("failed")
    ([0, 3], None, frozenset())
    """
    if log_ranks == "all":
        return None
    if log_ranks == "failed":
        return frozenset()
    words: Iterable[int | str] = str(log_ranks).split(",") if isinstance(log_ranks, (str, int)) else log_ranks
    numbers = [str(word).strip() for word in words]
    if not numbers or not all(number.isdecimal() for number in numbers):
        raise BadInputError(f"log_ranks: {log_ranks!r} is not known; use all, failed, or ranks such as 0,1")
    return frozenset(map(int, numbers))


def is_shown(source: str, ranks: frozenset[int] | None) -> bool:
    """Returns whether the lines of a source are shown. Lines of launchers and roles are shown unless `ranks` is empty.

    >>> [source for source in ("rank 0", "rank 10", "launcher") if is_shown(source, frozenset({0}))]
    ['rank 0', 'launcher']
    """
    if ranks is None:
        return True
    word, _, number = source.partition(" ")
    return int(number) in ranks if word == "rank" and number.isdecimal() else bool(ranks)
