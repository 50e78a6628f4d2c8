"""The corpus: inputs that have broken a parser, here or elsewhere. Small ones are files, large ones are generated."""

from __future__ import annotations

import io
import tarfile
from base64 import b64encode
from functools import cache
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpus"
MB = 1 << 20


@cache
def entries() -> dict[str, bytes]:
    """Returns all entries by name."""
    stored = {path.name: path.read_bytes() for path in sorted(DIRECTORY.iterdir())}
    return {"empty": b"", **stored, **_generated()}


@cache
def small() -> tuple[bytes, ...]:
    """Returns the entries of at most 4 KiB."""
    return tuple(data for data in entries().values() if len(data) <= 4096)


def _generated() -> dict[str, bytes]:
    stamp = b"2026-01-01T12:00:02.123456789Z "
    return {
        "deep list": b"[" * 100_000,
        "deep closed list": b"[" * 50_000 + b"]" * 50_000,
        "list at the recursion limit": b"[" * 900 + b"]" * 900,
        "deep mapping": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "mapping at the recursion limit": b'{"a":' * 900 + b"1" + b"}" * 900,
        "deep event": b'[stepset] {"event": "result", "result": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        "deep progress": b'{"stepset": ' + b"[" * 2000,
        "deep YAML": b"".join(b" " * level + b"a:\n" for level in range(1000)),
        "YAML keys": b"? " * 50_000,
        "huge integer": b"9" * 5000,
        "huge integer in a mapping": b'{"rank": ' + b"9" * 5000 + b', "version": 1' + b"0" * 400 + b"}",
        "huge exponent": b'{"a": 1e999999999, "num_nodes": 1e' + b"9" * 1000 + b"}",
        "huge TOML integer": b"a = " + b"9" * 5000,
        "TOML key of many parts": b"a." * 50_000 + b"a = 1",
        "many TOML tables": b"[a]\n[a.b]\n" + b"".join(b"[a.b.k%d]\n" % n for n in range(20_000)),
        "number of base 60": b"num_nodes: 1" + b":1" * 100_000,
        "alias bomb": b"a: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(b"b%d: &a%d [%s]\n" % (n, n + 1, b", ".join([b"*a%d" % n] * 9)) for n in range(9)),
        "one line of a megabyte": b"x" * MB,
        "line with a stamp of a megabyte": stamp + b"x" * MB,
        "many lines": b"\n" * MB,
        "many short lines": b"[rank 0] x\n" * 50_000,
        "many sources": b"".join(b"[rank %d] x\n" % n for n in range(50_000)),
        "many parts": b"[rank 0+] x\n" * 50_000,
        "many keys": b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(50_000)) + b"}",
        "many cursor movements": b"\x1b[A" * 200_000,
        "many colours": b"\x1b[31m" * 100_000,
        "many incomplete sequences": b"\x1b[" * 200_000,
        "many incomplete titles": b"\x1b]" * 200_000,
        "many returns": b"\r" * 500_000,
        "many joiners": "\u200d".encode() * 200_000,
        "many NULs": bytes(MB),
        "many quotes": b"'" * 200_000,
        "many backslashes": b"\\" * 200_000,
        "many references": b"$(" * 200_000,
        "many stars": b"*a" * 15 + b"b\n",
        "many double stars": b"**/" * 30 + b"b\n",
        "many brackets": b"[!" * 500 + b"\n",
        "many dashes": (b"-" * 72 + b"\n") * 5000,
        "many tracebacks": b"Traceback (most recent call last):\n" * 10_000,
        "many root causes": b"Root Cause (first observed failure):\n" * 10_000,
        "many error words": b"AError " * 50_000,
        "many timeouts": b"rendezvous " * 50_000,
        "many comments": b"#" * 200_000,
        "many private keys": b"-----BEGIN PRIVATE KEY-----\\n" * 10_000,
        "large result": b'{"result": "' + b"x" * MB + b'"}',
        "archive bomb": b64encode(_archive(b"\0" * (8 * MB))),
        "damaged archive": _damaged(b64encode(_archive(b"print(1)\n" * 1000))),
        "page with an unreadable item": b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":'
        + b"[" * 9000
        + b"]}",
    }


def _archive(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def _damaged(text: bytes) -> bytes:
    """Replaces bytes in the compressed data, behind the header of the gzip stream."""
    middle = len(text) // 2
    return text[:middle] + bytes(65 + byte % 26 for byte in text[middle : middle + 16]) + text[middle + 16 :]
