"""Replaces the values of the job's Secrets in the agent's reports about the output of processes.

The output lines are printed unchanged. Values are replaced before a text is cut. Therefore no part of a value remains.
`parse_json` limits the nesting of JSON, because `Redactor.data` is recursive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from stepset.agent.errors import IF_POSSIBLE

MASK = "***"
SHORTEST = 5  # The minimum length of a value that is replaced. Shorter values may be parts of ordinary words.
SHORTEST_LINE = 8  # If a value has several lines, only lines with at least this length are replaced separately.
KEPT = 1000  # Readers store at most this number of bytes of a line.
MOST_EVENTS = 64  # maximum lines of a block that are reported; readers store fewer
DEEPEST = 100  # levels of lists and objects, as in stepset.watch.bounded_json, which reads what the agent reports
_FILE_LIMIT = 1 << 20
_FEW = 100  # With at most this number of forms, a search for each form is faster than a search with `_by_word`.
_ENCODINGS = ("surrogateescape", "surrogatepass")

# Sets of characters that Python's `quote`, SQLAlchemy, JavaScript, Go and requests do not encode in URLs.
_SAFE = ("", "/", " +", "!'()*", "$&+,;=", "$&+=:@", "!#$%&'()*+,/:;=?@[]~")
_LONGEST_URL = 4096  # If a value has more characters, `everywhere` of `_forms_of_text` is False.


class Redactor:
    """Replaces values, and also the forms in which programs print values: escaped, percent-encoded or as base64.

    Args:
        values: the values. White space around them is ignored. Each line of a value with several lines is also a value.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in _forms(value.strip())}
        # Each form is stored in two encodings: the encoding of output lines, and the encoding that `_in` and `_spans`
        # use. The encodings differ only for values that are not UTF-8.
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

        If `cut` is true, the text is the end of a longer text. Then it may begin with the last part of a value.
        """
        spans = sorted(self._spans(text, cut))
        parts, end = [], 0
        for start, stop in spans:
            if start >= end:
                parts += [text[end:start], MASK]
            end = max(end, stop)
        return "".join(parts) + text[end:]

    def data(self, value: Any) -> Any:
        """Returns JSON data without the values. If a number contains a value, it is converted to text."""
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
        """Replaces the values in JSON. If none is found, returns `text`. Raises the errors of `parse_json`."""
        if not self:
            return text
        import json

        data = parse_json(text)
        redacted = self.data(data)
        if redacted == data and not self._in(text.decode()):
            return text
        return json.dumps(redacted, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def failure(self, failure: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a failure without the values."""
        texts = {key: self.data(failure[key]) for key in ("error", "tail") if key in failure}
        return {**failure, **texts}

    def reports(self, block: bytes) -> bytes:
        """Replaces the values in the progress reports of a block of lines, because progress reports are stored."""
        if not self or b'"stepset"' not in block:
            return block
        return b"\n".join(map(self._report, block.split(b"\n")))

    def concerns(self, block: bytes) -> bool:
        """Returns whether lines contain a value, or may be reports of progress."""
        return bool(self) and (b'"stepset"' in block or bool(self._found(block)))

    def events(self, source: str, block: bytes, *, cut: bool = False) -> bytes:
        """Returns events for lines that contain values. Readers show the texts of the events, not these lines.

        A reader identifies a line by the digest of its first KEPT bytes. Only the last MOST_EVENTS lines are reported.

        Args:
            source: the source of the lines.
            cut: whether the first line is the end of a longer line.
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
        """Returns the forms in `data`. With `_by_word`, searches only for forms that share a word with `data`."""
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
        # A cut text may begin with a part of a value.
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
    """Returns a redactor for the values of variables and the contents of files. Missing files are ignored."""
    # Python has decoded the variables with the encoding of the locale, but most programs print UTF-8.
    values = [os.fsencode(env[name]).decode("utf-8", "surrogateescape") for name in names if name in env]
    for path in files:
        with IF_POSSIBLE, open(path, "rb") as file:
            values.append(file.read(_FILE_LIMIT).decode("utf-8", "replace"))
    return Redactor(values)


def _forms(value: str) -> Iterator[str]:
    """Returns the forms in which a value is recognised."""
    if len(value) < SHORTEST:
        return
    lines = value.splitlines()
    if len(lines) == 1:
        yield from _forms_of_text(value, len(value) <= _LONGEST_URL)
        return
    yield from _forms_of_text(value)
    for line in lines:
        if len(line.strip()) >= SHORTEST_LINE:
            yield from _forms_of_text(line.strip())


def _forms_of_text(value: str, everywhere: bool = False) -> Iterator[str]:
    """Returns the forms of a text. With `everywhere`, also returns its forms in URLs, in markup and in Go's JSON."""
    import json
    from binascii import b2a_base64

    data = value.encode("utf-8", "surrogateescape")
    texts = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    quoted = _quoted(value, "", "%%%02X")
    base64 = b2a_base64(data, newline=False).decode().rstrip("=")
    yield data.decode("utf-8", "replace")  # if the value is not UTF-8: `events` decodes lines in this way
    yield from (value, *texts, repr(value)[1:-1], quoted, quoted.replace("%20", "+"))
    yield from (base64, base64.replace("+", "-").replace("/", "_"))
    if not everywhere:
        return
    yield from (ascii(value)[1:-1], repr(data)[2:-1])
    for safe in _SAFE:
        for form in ("%%%02X", "%%%02x"):
            yield _quoted(value, safe, form)
    for text in texts:
        yield text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for quote in ('"', "&quot;", "&#34;"):
        for apostrophe in ("'", "&#x27;", "&#39;"):
            yield text.replace('"', quote).replace("'", apostrophe)


def _quoted(value: str, safe: str, form: str) -> str:
    return "".join(
        char
        if (char.isascii() and char.isalnum()) or char in "_.-~" + safe
        else "".join(map(form.__mod__, char.encode("utf-8", "surrogateescape")))
        for char in value
    )


def parse_json(data: bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: the data is not UTF-8, is not JSON, or has more than DEEPEST levels.
    """
    import json

    try:
        found = json.loads(data.decode())
    except RecursionError as error:
        raise ValueError(f"more than {DEEPEST} levels") from error
    level = [found]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return found
    raise ValueError(f"more than {DEEPEST} levels")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
