"""Splits the output of pods without an agent into lines. All lines have the same source."""

from __future__ import annotations

from stepset.watch.lines import PART_LIMIT, Batch, Head
from stepset.watch.reported import may_report, parse_report, resembles_report


class PlainSplitter:
    """Splits the output of a pod. The output is given in chunks that can end anywhere."""

    def __init__(self, source: str) -> None:
        self._whole, self._part = Head(source, False), Head(source, True)
        self._prefix = b"[%s] " % source.encode()
        self._prefix_part = b"[%s+] " % source.encode()
        self._rest = b""
        self._in_line = False

    def feed(self, data: bytes) -> Batch:
        """Processes `data`, and returns the lines that `data` completes."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        batch = self._split(data[:end]) if end else Batch()
        self._rest = data[end:]
        if len(self._rest) > PART_LIMIT:
            part, self._rest = self._rest, b""
            batch.lines.append((self._part, part))
            batch.shown += self._prefix_part + part + b"\n"
            batch.raw.setdefault(self._part.source, []).append(part)
            batch.parts = self._in_line = True
        return batch

    def finish(self) -> Batch:
        """Ends the log. If the last line has no line end, returns this line."""
        return self.feed(b"\n") if self._rest or self._in_line else Batch()

    def _split(self, whole: bytes) -> Batch:
        batch = Batch()
        rows = whole.split(b"\n")
        rows.pop()
        batch.raw[self._whole.source] = [whole]
        if may_report(whole):
            kept, source = [], self._whole.source
            for row in rows:
                if row[:1] == b"{" and not self._in_line and (report := parse_report(row, source)):
                    batch.progress.append(report)
                else:
                    kept.append(row)
                    batch.unread_report = batch.unread_report or resembles_report(row)
                self._in_line = False
            rows = kept
        self._in_line = False
        head = self._whole
        batch.lines = [(head, row) for row in rows]
        if rows:
            batch.shown = self._prefix + (b"\n" + self._prefix).join(rows) + b"\n"
        return batch
