"""Redacts the last lines of a source if they contain values of Secrets.

Only the agent knows the values of the Secrets. Before the agent prints a line that contains such a value, it prints an
event (stepset.agent.redact). This event contains a digest of the line and the redacted text. The logs still contain the
original line.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

KEPT = 1000
"""The number of bytes of a line that are kept. The digest is computed from these bytes."""

_MOST = 100
"""The maximum number of redacted lines of a source. This number is larger than the number of last lines of a source."""
_LINES = 4096
"""The maximum number of redacted lines of all sources. If this number is exceeded, one line is dropped. The dropped
line is the oldest line of the source whose last event is the oldest."""
_TEXT = 200
_DIGEST = 32
_SOURCES, _SOURCE = 2048, 100
"""The maximum number of sources, and of characters of a source. The source of a line is not longer
(stepset.watch.lines).
"""
_WITHHELD = "***"
"""The text that is shown instead of a line whose redacted text may have been dropped because of these limits."""


class RedactedLines:
    """The redacted texts that the agents have reported, by source. These texts use at most a few megabytes."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, dict[str, str]] = OrderedDict()  # sorted by the last event of the source
        self._lines = 0
        self._dropped: set[str] = set()
        self._dropped_any = False  # True if lines were dropped and their source is not in `_dropped`

    def see(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Records the events about redacted lines, and ignores all other events."""
        for event in events:
            if event.get("event") == "redacted":
                self._add(event.get("source"), event.get("digest"), event.get("text"))

    def shown(self, source: str, line: bytes) -> str:
        """Returns the text to show for one of the last lines of a source. Uses only the first KEPT bytes of `line`."""
        known = self._texts.get(source)
        if known:
            text = known.get(hashlib.sha256(line[:KEPT]).hexdigest()[:_DIGEST])
            if text is not None:
                return text
        if self._dropped_any or source in self._dropped:
            return _WITHHELD
        return line[:KEPT].decode("utf-8", "replace")

    def clear(self) -> None:
        """Forgets all lines, because a new attempt begins."""
        self._texts.clear()
        self._dropped.clear()
        self._lines, self._dropped_any = 0, False

    def _add(self, source: object, digest: object, text: object) -> None:
        if not (isinstance(source, str) and isinstance(digest, str) and isinstance(text, str)):
            return
        if len(source) > _SOURCE:
            return
        if source not in self._texts and len(self._texts) >= _SOURCES:
            self._dropped_any = True
            return
        known, digest = self._texts.setdefault(source, {}), digest[:_DIGEST]
        self._texts.move_to_end(source)
        self._lines -= known.pop(digest, None) is not None
        known[digest] = text[:_TEXT]
        self._lines += 1
        if len(known) > _MOST:
            del known[next(iter(known))]
            self._lines -= 1
        elif self._lines > _LINES:
            self._drop_line()

    def _drop_line(self) -> None:
        source, lines = next(iter(self._texts.items()))
        del lines[next(iter(lines))]
        self._lines -= 1
        if not lines:
            del self._texts[source]
        if len(self._dropped) < _SOURCES:
            self._dropped.add(source)
        else:
            self._dropped_any = True
