"""The code blocks of the documentation's pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^( *)```([\w{}-]*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# ([\w-]+\.(?:py|yaml))\n")
_VARIES = (
    (re.compile(r"\b([a-z][a-z-]*)-[0-9a-f]{6}\b"), r"\1-RUN"),
    (re.compile(r"\brank \d+|node-\d+|node \d+"), "RANK"),
    (re.compile(r"\b\d+(?:\.\d+)?( s\b|m\d\ds\b)"), "TIME"),
)


@dataclass(frozen=True)
class Block:
    """A code block of a page; `line` is that of its first line of code."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The name in its first line, `# train.py`; empty if there is none."""
        found = _NAMED.match(self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class Command:
    """A command in a block, and the output below it."""

    words: str
    output: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """Returns the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start(3)) + 1, found[2], textwrap.dedent(found[3]))
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """Yields the commands of a block in which each follows a `$`; a backslash continues a line."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        first, _, rest = part.replace("\\\n", " ").partition("\n")
        yield Command(" ".join(first.split()), tuple(line for line in rest.splitlines() if line.strip()))


def comparable(line: str) -> str:
    """Returns a line of output without what differs between two runs: suffixes of names, numbers of ranks, times.

    >>> comparable("stepset: run train-6ab5c6 succeeded in 17.5 s")
    'stepset: run train-RUN succeeded in TIME'
    """
    for pattern, replacement in _VARIES:
        line = pattern.sub(replacement, line)
    return line.rstrip()
