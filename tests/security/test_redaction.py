"""Values of the job's Secrets in what agents report: failures, results, progress, last lines. Property tests."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
import traceback
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stepset.agent.lines import Lines, PartJoiner, Tail
from stepset.agent.redact import KEPT, MASK, SHORTEST, SHORTEST_LINE, Redactor
from stepset.watch.lines import Splitter
from stepset.watch.redacted_lines import RedactedLines

TOKEN = "tok-Zm9v/YmFy+\"q'u\\o\te-éñ"
KEY = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7b1\nc2VjcmV0IGtleQ0K/+==\n-----END KEY-----\n"

SECRETS = st.text(st.characters(exclude_categories=("Cs",)), min_size=SHORTEST, max_size=40).filter(
    lambda value: len(value.strip()) >= SHORTEST and "*" not in value
)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)

JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda each: st.lists(each, max_size=3))


def forms(value: str) -> list[str]:
    """How programs print a value."""
    value = value.strip()
    encoded = value.encode()
    return [
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value, safe=""),
        quote_plus(value, safe=""),
        base64.b64encode(encoded).decode().rstrip("="),
        base64.urlsafe_b64encode(encoded).decode().rstrip("="),
        *(forms_of_line(value) if len(value.splitlines()) == 1 else ()),
    ]


def forms_of_line(value: str) -> list[str]:
    """How programs print a value in URLs, in markup, in the JSON of Go, and as bytes in Python."""
    return [
        quote(value),
        re.sub("%..", lambda found: found.group().lower(), quote(value, safe="")),
        quote(value, safe=" +"),  # sqlalchemy.engine.URL
        quote(value, safe="!'()*"),  # encodeURIComponent
        quote(value, safe="$&+,;="),  # net/url.UserPassword
        quote(value, safe="!#$%&'()*+,/:;=?@[]~"),  # requests.utils.requote_uri
        html.escape(value),
        html.escape(value, quote=False),
        escape(value),
        json.dumps(value)[1:-1].replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        ascii(value)[1:-1],
        repr(value.encode())[2:-1],
    ]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(SECRETS, TEXTS, TEXTS)
@example(TOKEN, "", "")
@example(KEY, "a", "b")
@example("aaaaa", "aaa", "aaa")
def test_a_value_is_replaced_in_every_form(secret: str, before: str, after: str) -> None:
    for form in forms(secret):
        shown = Redactor([secret]).text(before + form + after)
        assert form not in shown
        assert MASK in shown


MANY = "\n".join(f"line {number:05} of a long secret" for number in range(200))


@given(SECRETS, TEXTS, TEXTS)
@example(KEY, "a", "b")
@example("aaaaa", "aaa", "aaa")
@example("\xe9\xe9\xe9\xe9\xe9", "x", "\ud800")
def test_a_value_among_many_is_replaced_in_every_form(secret: str, before: str, after: str) -> None:
    few, many = Redactor([secret]), Redactor([secret, MANY])
    for form in (*forms(secret), MANY.splitlines()[77]):
        text = before + form + after
        shown = many.text(text)
        assert form not in shown and MASK in shown
        assert shown == few.text(text) or "line 00077" in text
        line = text.replace("\n", " ").encode("utf-8", "replace")
        assert bool(many.events("rank 0", line)) == many.concerns(line) == (many.text(line.decode()) != line.decode())


@settings(deadline=None, derandomize=True, max_examples=300)
@given(SECRETS, SECRETS, st.integers(0, 40))
@example("abcdef", "cdefgh", 2)
def test_of_values_that_overlap_nothing_remains(one: str, other: str, shared: int) -> None:
    one, other = one.strip(), other.strip()
    other = one[-shared:] + other if shared else other
    text = one + other[shared:]
    shown = Redactor([one, other]).text(text)
    assert one not in shown
    assert other not in shown


@settings(deadline=None, derandomize=True)
@given(TEXTS, SECRETS)
def test_text_without_a_value_is_unchanged(text: str, secret: str) -> None:
    assume(not any(form in text for form in forms(secret)))
    assume(not any(len(line.strip()) >= SHORTEST_LINE and line.strip() in text for line in secret.splitlines()))
    assert Redactor([secret]).text(text) == text


@pytest.mark.parametrize("value", ["", "1", "abc", "true", "    x    ", "\n"])
def test_values_of_fewer_than_five_characters_are_not_replaced(value: str) -> None:
    redactor = Redactor([value])
    assert not redactor
    assert redactor.text("true: abc 1 x") == "true: abc 1 x"


def test_each_long_line_of_a_value_is_replaced() -> None:
    shown = Redactor([KEY]).text("read MIIEpAIBAAKCAQEA7b1\nc2VjcmV0IGtleQ0K/+== END KEY")
    assert shown == f"read {MASK}\n{MASK} END KEY"


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda each: st.lists(each, max_size=3)), SECRETS
)
def test_no_string_of_json_contains_the_value(data: object, secret: str) -> None:
    document = {"data": data, secret: [f"x{secret}y", {"k": secret}]}
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        redacted = Redactor([secret]).json(text.encode()).decode()
        assert secret.strip() not in json.dumps(json.loads(redacted), ensure_ascii=False)
    assert Redactor(["12345678"]).json(b'{"pin": 12345678, "n": 1}') == b'{"pin":"***","n":1}'


@settings(deadline=None, derandomize=True)
@given(JSON)
def test_json_without_the_value_keeps_its_bytes(data: object) -> None:
    text = json.dumps(data, indent=3).encode()
    assert Redactor(["not in there"]).json(text) == text


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 300), st.integers(0, 5))
def test_a_value_that_the_start_of_the_tail_cuts_is_replaced(offset: int, extra: int) -> None:
    secret = "0123456789" * 20
    tail = Tail(Redactor([secret]))
    rest = "x" * ((1 << 18) - offset)
    for piece in (b"y" * (1 << 18) + b"z" * extra, f"{secret}{rest}".encode()):
        tail.add(piece)
    shown = tail.text()
    assert not any(secret[at : at + SHORTEST] in shown for at in range(10))


def test_a_value_whose_parts_have_different_colours_is_replaced() -> None:
    tail = Tail(Redactor(["tok-0123456789"]))
    tail.add(b"ValueError: tok-01234\x1b[1;31m56789\x1b[0m\n")
    assert tail.text() == f"ValueError: {MASK}\n"


def test_a_value_that_is_not_utf_8_is_replaced() -> None:
    secret = b"pass\xffword"
    redactor = Redactor([secret.decode("utf-8", "surrogateescape")])
    assert redactor.text((b"x " + secret).decode("utf-8", "replace")) == f"x {MASK}"
    assert f'"text": "x {MASK}"'.encode() in redactor.events("rank 0", b"x " + secret)


def test_the_locale_of_the_agent_does_not_matter() -> None:
    code = "import os; from stepset.agent.redact import make_redactor; "
    code += "print(ascii(make_redactor(os.environ, ['TOKEN']).text('x p\\xe4sswort')))"
    env = {**os.environ, "TOKEN": "p\xe4sswort", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-X", "utf8=0", "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.decode().strip() == f"'x {MASK}'"


def test_a_traceback_contains_no_value() -> None:
    try:
        raise ValueError({"password": TOKEN, "url": f"https://user:{quote(TOKEN, safe='')}@host"})
    except ValueError:
        printed = traceback.format_exc()
    assert any(form in printed for form in forms(TOKEN))
    shown = Redactor([TOKEN]).text(printed)
    assert not any(form in shown for form in forms(TOKEN))


LINES = st.lists(st.tuples(TEXTS.map(lambda text: re.sub("[\r\n]", " ", text)), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(LINES, st.integers(1, 50), st.integers(0, KEPT + 20))
def test_last_lines_are_reported_without_the_value_and_printed_with_it(
    rows: list[tuple[str, bool]], size: int, indent: int
) -> None:
    lines = [f"{number}{' ' * indent}{text}{TOKEN if leaks else ''}" for number, (text, leaks) in enumerate(rows)]
    data = "".join(f"{line}\n" for line in lines).encode()
    printer, printed = Lines("rank 0", Redactor([TOKEN])), b""
    for at in range(0, len(data), size * 40):
        printed += printer.feed(data[at : at + size * 40])
    rows_printed = printed.decode().split("\n")[:-1]
    assert [row.removeprefix("[rank 0] ") for row in rows_printed if row.startswith("[rank 0] ")] == lines
    redacted = RedactedLines()
    redacted.see(json.loads(row.removeprefix("[stepset] ")) for row in rows_printed if row.startswith("[stepset] "))
    for line, (_, leaks) in zip(lines, rows, strict=True):
        shown = redacted.shown("rank 0", line.encode())
        assert TOKEN not in shown
        assert leaks or shown == line.encode()[:KEPT].decode("utf-8", "replace")


def test_a_value_that_parts_of_a_long_line_cut_is_not_reported() -> None:
    secret = "0123456789" * 10
    joiner = PartJoiner(lambda text: b"", Redactor([secret]))
    text = f"{'x' * 4000}{secret}{'y' * 100}".encode()
    printed = joiner.lines(b"[rank 1+] " + text[:4050] + b"\n[rank 1] " + text[4050:] + b"\n")
    event, line, end = printed.split(b"\n")
    assert (line, end) == (b"[rank 1] " + text, b"")
    redacted = RedactedLines()
    redacted.see([json.loads(event.removeprefix(b"[stepset] "))])
    assert secret[:SHORTEST] not in redacted.shown("rank 1", text)


def test_a_line_that_the_end_of_its_rank_cuts_is_reported_without_the_value() -> None:
    joiner = PartJoiner(lambda text: b"", Redactor([TOKEN]))
    text = f"the token is {TOKEN}{'x' * 4000}".encode()
    assert joiner.feed(b"[rank 3+] " + text + b"\n") == b""
    event, line, end = joiner.finish().split(b"\n")
    assert (line, end) == (b"[rank 3] " + text, b"")
    redacted = RedactedLines()
    redacted.see([json.loads(event.removeprefix(b"[stepset] "))])
    assert redacted.shown("rank 3", text).startswith(f"the token is {MASK}x")


@pytest.mark.parametrize("sources", [2, 30, 300, 3000])
def test_no_value_is_shown_however_many_sources_print_one(sources: int) -> None:
    lines = [f"{number} {TOKEN}".encode() for number in range(110)]
    redactor, redacted = Redactor([TOKEN]), RedactedLines()
    events = [json.loads(redactor.events("rank 0", line).removeprefix(b"[stepset] ")) for line in lines]
    for number in range(sources):
        redacted.see({**event, "source": f"rank {number}"} for event in events[:20])
    redacted.see({**event, "source": "rank 1"} for event in events)
    for number in (0, *range(2, sources)):
        assert not any(TOKEN in redacted.shown(f"rank {number}", line) for line in lines[:20])
    if sources <= 300:
        assert [redacted.shown("rank 1", line) for line in lines[90:]] == [f"{n} {MASK}" for n in range(90, 110)]
    if sources <= 30:
        assert redacted.shown("rank 0", b"another line") == "another line"


def test_reports_of_progress_contain_no_value() -> None:
    report = json.dumps({"stepset": {"step": 1, "metrics": {TOKEN: 1.5}}})
    printed = Lines("rank 0", Redactor([TOKEN])).feed(f"{report}\n".encode())
    assert printed == b'[rank 0] {"stepset":{"step":1,"metrics":{"***":1.5}}}\n'


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(b'{"st\\u0065pset": {"metrics": {"VALUE": 1.5}}}', id="escaped"),
        pytest.param(b'{"stepset": {"metrics": {"VALUE": 1.5, "\xed\xa0\x80": 2}}}', id="not UTF-8"),
        pytest.param('{"stepset": {"metrics": {"VALUE": 1.5}}}'.encode("utf-16-le"), id="UTF-16"),
    ],
)
def test_a_line_whose_values_the_agent_does_not_replace_is_no_report_of_progress(report: bytes) -> None:
    other = b'{"stepset": {"step": 1}}'
    token = "abcdefgh"
    printed = Lines("rank 0", Redactor([token])).feed(b"%s\n%s\n" % (other, report.replace(b"VALUE", token.encode())))
    assert [each.progress.metrics for each in Splitter("node 0").feed(printed).progress] == [{}]
