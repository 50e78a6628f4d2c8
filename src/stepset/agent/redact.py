"""Redaction: replaces the values of the job's Secrets in what the agent reports about the output of processes.

The lines themselves are printed as they are. Values are replaced before a text is cut, so that no part of one remains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from stepset.agent.errors import IF_POSSIBLE

MASK = "***"
SHORTEST = 5  # characters of a value that is replaced: a shorter one would also replace parts of ordinary words
SHORTEST_LINE = 8  # the same for one line of a value of several lines
KEPT = 1000  # bytes that readers store of each of the last lines of a source
MOST_EVENTS = 64  # maximum lines of a block that are reported; readers store fewer
_FILE_LIMIT = 1 << 20
_FEW = 100  # up to this number of forms, a search for each form is faster than a search by words
_ENCODINGS = ("surrogateescape", "surrogatepass")

_UNQUOTED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class Redactor:
    """Replaces values, also in the forms in which programs print them: escaped, percent-encoded, as base64.

    Args:
        values: the values; surrounding white space is ignored, and each line of a multi-line value is also a value.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in _forms(value.strip())}
        # Each form has two encodings: that of lines, and that in which `_in` and `_spans` search. They differ only for
        # values that are not UTF-8.
        self._forms = {form.encode("utf-8", errors): form for form in found for errors in _ENCODINGS}
        self._by_word: dict[int, list[bytes]] = {}
        for form in self._forms if len(self._forms) > _FEW else ():
            word = min(_words(form[:16]), key=lambda word: len(self._by_word.get(word, ())))
            self._by_word.setdefault(word, []).append(form)
        self._words = frozenset(self._by_word)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str, *, cut: bool = False) -> str:
        """Returns a text without the values.

        `cut` is whether the text is the end of a longer one, and may start with the end of a value.
        """
        spans = sorted(self._spans(text, cut))
        parts, end = [], 0
        for start, stop in spans:
            if start >= end:
                parts += [text[end:start], MASK]
            end = max(end, stop)
        return "".join(parts) + text[end:]

    def data(self, value: Any) -> Any:
        """Returns JSON data without the values; a number that contains one becomes a text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.data(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.data(each) for each in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and self._in(repr(value)):
            return self.text(repr(value))
        return value

    def json(self, text: bytes) -> bytes:
        """Returns JSON without the values; the same bytes if it has none. Raises ValueError if it is not JSON."""
        if not self:
            return text
        import json

        try:
            data = json.loads(text.decode())
            redacted = self.data(data)
        except RecursionError as error:
            raise ValueError("too many levels") from error
        if redacted == data and not self._in(text.decode()):
            return text
        return json.dumps(redacted, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def failure(self, failure: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a failure without the values."""
        texts = {key: self.data(failure[key]) for key in ("error", "tail") if key in failure}
        return {**failure, **texts}

    def reports(self, block: bytes) -> bytes:
        """Returns the lines with the values removed from progress reports, because progress reports are stored."""
        if not self or b'"stepset"' not in block:
            return block
        return b"\n".join(map(self._report, block.split(b"\n")))

    def concerns(self, block: bytes) -> bool:
        """Whether lines contain a value, or may be reports of progress."""
        return bool(self) and (b'"stepset"' in block or bool(self._found(block)))

    def events(self, source: str, block: bytes, *, cut: bool = False) -> bytes:
        """Returns events for the lines of a block that contain values: what readers show instead of these lines.

        A reader recognises a line by the digest of its first KEPT bytes. Of many lines, the last ones are reported.

        Args:
            source: the source of the lines.
            cut: as in `text`, for the first line.
        """
        if not self:
            return b""
        lines = []
        if cut:
            first, _, block = block.partition(b"\n")
            lines += [(first, True)]
        if self._found(block):
            lines += [(line, False) for line in block.split(b"\n") if self._found(line)]
        if not lines:
            return b""
        import json
        from hashlib import sha256

        found = []
        for line, begins_cut in lines[-MOST_EVENTS:]:
            text = line.decode("utf-8", "replace")
            redacted = self.text(text, cut=begins_cut)
            if redacted != text:
                event = {"event": "redacted", "source": source, "digest": sha256(line[:KEPT]).hexdigest()[:32]}
                found.append(b"[stepset] %s\n" % json.dumps({**event, "text": redacted[:200]}).encode())
        return b"".join(found)

    def _report(self, line: bytes) -> bytes:
        if line[:1] != b"{" or b'"stepset"' not in line:
            return line
        try:
            return self.json(line)
        except ValueError:
            return line

    def _in(self, text: str) -> bool:
        return bool(self._found(text.encode("utf-8", "surrogatepass")))

    def _found(self, data: bytes) -> list[bytes]:
        """Returns the forms that `data` contains; with `_by_word`, searches only forms whose word is in `data`."""
        forms: Iterable[bytes] = self._forms
        if self._words:
            forms = [form for word in self._words.intersection(_words(data)) for form in self._by_word[word]]
        return [form for form in forms if form in data]

    def _spans(self, text: str, cut: bool) -> Iterator[tuple[int, int]]:
        for form in {self._forms[found] for found in self._found(text.encode("utf-8", "surrogatepass"))}:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)
        # The end of a value at the start of a text.
        start = text[:SHORTEST]
        for form in self._forms.values() if cut and len(start) == SHORTEST else ():
            at = form.find(start, 1)
            while at >= 0 and not (text.startswith(form[at : at + 99]) and text.startswith(form[at:])):
                at = form.find(start, at + 1)
            if at >= 0:
                yield 0, len(form) - at


def _words(data: bytes) -> Iterator[int]:
    """Returns each sequence of four consecutive bytes as a number."""
    view = memoryview(data)
    return chain(*(view[at : at + (len(data) - at) // 4 * 4].cast("I") for at in range(4)))


def make_redactor(env: Mapping[str, str], names: Iterable[str], files: Iterable[str] = ()) -> Redactor:
    """Returns a redactor for the values of variables, and for the contents of files that exist."""
    # Python has decoded variables with the encoding of the locale; programs print UTF-8 in most cases.
    values = [os.fsencode(env[name]).decode("utf-8", "surrogateescape") for name in names if name in env]
    for path in files:
        with IF_POSSIBLE, open(path, "rb") as file:
            values.append(file.read(_FILE_LIMIT).decode("utf-8", "replace"))
    return Redactor(values)


def _forms(value: str) -> Iterator[str]:
    """Returns the texts by which a value is recognised."""
    if len(value) < SHORTEST:
        return
    import json
    from binascii import b2a_base64

    data = value.encode("utf-8", "surrogateescape")
    quoted = "".join(char if char in _UNQUOTED else "".join("%%%02X" % byte for byte in _bytes(char)) for char in value)
    base64 = b2a_base64(data, newline=False).decode().rstrip("=")
    yield data.decode("utf-8", "replace")  # if the value is not UTF-8: `events` decodes lines in this way
    yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    yield from (quoted, quoted.replace("%20", "+"), base64, base64.replace("+", "-").replace("/", "_"))
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= SHORTEST_LINE:
                yield from _forms(line.strip())


def _bytes(char: str) -> bytes:
    return char.encode("utf-8", "surrogateescape")
