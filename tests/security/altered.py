"""Hypothesis strategies for inputs of parsers: altered valid inputs, any JSON, any bytes, entries of the corpus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZED
from tests.security.corpus import small

if TYPE_CHECKING:
    from tests.security.parsers import Parser

PIECES = st.binary(max_size=6) | st.sampled_from(
    [
        *(b"\n", b"\r", b"\0", b"{", b"[", b'"', b"'", b": ", b"- ", b"*a", b"&a ", b"!!int ''", b"!!bool x", b"<<: "),
        *(
            b"null",
            b"NaN",
            b"1e999",
            b"-1",
            b"9" * 400,
            b"9" * 4301,
            b"[" * 2000,
            b'{"a":' * 200,
            b"\\ud800",
            b"\\u0000",
        ),
        *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", "\u202e".encode(), b"\x1b]52;c;x\x07", b"\x1b["),
        *(b"[rank 0+] ", b"[rank 0] ", b"[stepset] ", b"[stepset 1+] ", b"[node 0] ", b'{"stepset": '),
        *(b"2026-99-99T99:99:99.123456789Z ", b"2026-02-30T00:00:00.123456789+99:99 "),
        *(b"9999-12-31T23:59:59.999999999-23:59 ", b"0001-01-01T00:00:00.000000000+23:59 "),
    ]
)
NUMBERS = st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), True])
WORDS = st.text(max_size=8) | st.sampled_from(
    ["9" * 4301, "\ud800", "[" * 5000, "a\0b", "http://[", "\u202e", "x" * 5000]
)
JSON = st.recursive(
    st.none() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _replaced(draw: st.DrawFn, valid: Any) -> bytes:
    """JSON data in which one to three values, or parts, are replaced."""
    found = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        node: Any = found
        while keys := list(node) if isinstance(node, dict) else list(range(len(node))):
            key = draw(st.sampled_from(keys))
            if not isinstance(node[key], (dict, list)) or draw(st.integers(0, 4)) == 0:
                node[key] = draw(JSON)
                break
            node = node[key]
    return json.dumps(found).encode()


@st.composite
def _spliced(draw: st.DrawFn, valid: bytes) -> bytes:
    """Bytes in which one to four pieces are replaced by others."""
    data = valid
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(PIECES) + data[at + draw(st.integers(0, 40)) :]
    return data


def inputs(valid: bytes) -> st.SearchStrategy[bytes]:
    """Inputs of a parser, derived from a valid one."""
    found = [_spliced(valid), JSON.map(json.dumps).map(str.encode), st.lists(PIECES, max_size=8).map(b"".join)]
    try:
        data = json.loads(valid)
    except ValueError:
        data = None
    if isinstance(data, (dict, list)):
        found.append(_replaced(data))
    return st.one_of(*found, st.binary(max_size=100), st.sampled_from(small()))


def check_altered(parser: Parser) -> None:
    """Feeds a parser its valid input and alterations of it; raises as `Parser.check`."""

    @FUZZED
    @given(inputs(parser.valid))
    def check(data: bytes) -> None:
        parser.check(data)

    parser.check(parser.valid)
    check()
