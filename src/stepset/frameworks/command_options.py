"""Parses the options of a launcher such as torchrun or mpirun in a command line.

The parser stops at the program that the launcher starts, because the words after the program belong to the program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options of a launcher, grouped by the number of their values.

    Args:
        one: the options that take one value.
        none: the options that take no value.
        two: the options that take two values.
        pair: the options that take the name and the value of a variable. The name and the value are
            either two words (`A 1`) or one word (`A=1`).
        one_prefixes: prefixes of option names. All options with these prefixes take one value.
        argparse: whether the launcher uses Python's argparse. If so, long options may be abbreviated, and `-` and `_`
            are interchangeable in the names of options.
        interspersed: whether options may follow the program, up to the word `--`. This is the case for launchers that
            use Python's click.
    """

    one: frozenset[str]
    none: frozenset[str]
    two: frozenset[str] = frozenset()
    pair: frozenset[str] = frozenset()
    one_prefixes: tuple[str, ...] = ()
    argparse: bool = False
    interspersed: bool = False


class Option(NamedTuple):
    """An option in a command.

    Args:
        name: the full name of the option in its `Grammar`.
        value: the value of the option. None if the option has no value, or more than one value.
        at: the index of the option in the list of words.
        length: the number of words that the option and its values occupy.
    """

    name: str
    value: str | None
    at: int
    length: int


class Options(NamedTuple):
    """The options of a launcher, and the position of the program that the launcher starts.

    Args:
        read: the options, in the order of the command line.
        program: the index of the program in the list of words. None if an option is not in the `Grammar`, or if no word
            follows the options.
    """

    read: tuple[Option, ...]
    program: int | None


def read_options(words: Sequence[str], grammar: Grammar) -> Options:
    """Returns the options of a launcher. The options of the program that the launcher starts are not returned.

    >>> read_options(["--np=4", "./a.out", "--np", "3"], Grammar(frozenset({"--np"}), frozenset()))
    Options(read=(Option(name='--np', value='4', at=0, length=1),), program=1)
    """
    read = tuple(_options(words, grammar))
    taken = {at for option in read for at in range(option.at, option.at + option.length)}
    at = next((at for at in range(len(words)) if at not in taken), len(words))
    if grammar.interspersed:
        at = next((at for at, word in enumerate(words) if at not in taken and not word.startswith("-")), len(words))
    known = at < len(words) and (not words[at].startswith("-") or words[at] == "--")
    return Options(read, at if known else None)


def _options(words: Sequence[str], grammar: Grammar) -> Iterator[Option]:
    at = 0
    while at < len(words) and words[at] != "--":
        option = _option(words, at, grammar) if words[at].startswith("-") else None
        if option is not None:
            yield option
        elif not grammar.interspersed:
            return
        at += option.length if option else 1


def _option(words: Sequence[str], at: int, grammar: Grammar) -> Option | None:
    """Returns the option at index `at`. Returns None if the number of the option's values is unknown."""
    word = words[at]
    written, assigned, value = word.partition("=")
    name = _full_name(written, grammar)
    if assigned and name not in grammar.pair:
        return Option(name or written, value, at, 1)
    count = _count(words, at, name, grammar)
    if count is None:
        return None
    return Option(name or word, words[at + 1] if count == 2 and at + 1 < len(words) else None, at, count)


def _count(words: Sequence[str], at: int, name: str | None, grammar: Grammar) -> int | None:
    """Returns the number of words that an option and its values occupy. Returns None if this number is unknown."""
    if grammar.argparse and name is None and words[at][:2] in grammar.one:
        return 1  # `-t3`
    if name in grammar.pair:
        return 2 if "=" in "".join(words[at + 1 : at + 2]) else 3
    if name in grammar.two:
        return 3
    if name in grammar.none:
        return 1
    return 2 if name in grammar.one or (name or "").startswith(grammar.one_prefixes or ("\0",)) else None


def _full_name(written: str, grammar: Grammar) -> str | None:
    """Returns the full name of an option. Returns None if the option is unknown or if `written` is ambiguous."""
    known: Collection[str] = grammar.one | grammar.none | grammar.two | grammar.pair
    if not grammar.argparse:
        return written if written in known else None
    name = written[:2] + written[2:].replace("-", "_")
    if name in known or name.startswith(grammar.one_prefixes or ("\0",)):
        return name
    matching = [each for each in known if name.startswith("--") and each.startswith(name)]
    return matching[0] if len(matching) == 1 else None
