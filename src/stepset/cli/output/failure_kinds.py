"""Reads the kinds of failure from docs/failures.md. Each kind has causes and remedies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


class Cause(TypedDict):
    """One cause of a kind of failure. `message` is a part of the error message. `remedy` is the advice to the user."""

    message: str
    cause: str
    remedy: str


class KindOfFailure(TypedDict):
    """A kind of failure. `notes` contains further paragraphs about this kind."""

    kind: str
    advice: str
    notes: list[str]
    causes: list[Cause]


def kinds_of_failure() -> list[KindOfFailure]:
    """Returns all kinds of failure in the order of the page. The strings contain no Markdown."""
    import stepset

    package = Path(stepset.__file__).parent
    page = package / "failures.md"
    if not page.exists():  # only an installed wheel contains a copy of the page
        page = package.parents[1] / "docs" / "failures.md"
    sections = (section.partition("\n") for section in page.read_text(encoding="utf-8").split("\n## ")[1:])
    return [_kind(name, body.strip().split("\n\n")) for name, _, body in sections]


def _kind(name: str, paragraphs: list[str]) -> KindOfFailure:
    advice, *notes = (_plain(text) for text in paragraphs if not text.startswith("|"))
    causes = [cause for text in paragraphs if text.startswith("|") for cause in _causes(text)]
    return {"kind": name, "advice": advice, "notes": notes, "causes": causes}


def _causes(table: str) -> Iterator[Cause]:
    for line in table.splitlines()[2:]:
        message, cause, remedy = (_plain(cell) for cell in line.strip("|").split("|"))
        yield {"message": message, "cause": cause, "remedy": remedy}


def _plain(text: str) -> str:
    """Returns a paragraph as one line. Removes the Markdown markup of links and code."""
    return " ".join(_LINK.sub(r"\1", text).replace("`", "").split())
