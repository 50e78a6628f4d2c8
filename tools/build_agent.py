"""Builds src/stepset/agent/built/agent.py, the one file that runs in pods, from the package src/stepset/agent.

`make agent` writes the file, `make lint` checks that it is current (`--check`). Docstrings, comments and annotations
are left out, and a level of indentation is one space; every line keeps its number. The sources are compressed (zlib)
and written as text (base 85), which the first lines of the file decode. Compressors differ between machines, so the
check compares the decoded text.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import struct
import sys
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "stepset" / "agent"
BUILT = PACKAGE / "built" / "agent.py"

_FIRST = 40
"""The digits 0 to 84 are the characters from `(` to `|`, without quotes; `}` stands for the backslash. The
built file subtracts 2112882440: 40 in each of the five digits of a number."""

# The agent is process 1 of its container, and the kernel discards signals for which process 1 has no handler. Signals
# that arrive while the agent starts are therefore blocked until its event loop handles them.
_START = r"""#!/usr/bin/env python3
# The agent of stepset, built by tools/build_agent.py from src/stepset/agent. Do not edit it.
import marshal,sys
if sys.argv[1:2]==["run"]:
 try:import _signal as signal
 except ImportError:import signal
 signal.pthread_sigmask(signal.SIG_BLOCK,(signal.SIGTERM,signal.SIGINT,signal.SIGHUP))
def read(found={}):
 if not found:
  import struct,zlib
  n=[(((a*85+b)*85+c)*85+d)*85+e-2112882440 for a,b,c,d,e in zip(*[iter(TEXT.replace("}","\\").encode())]*5)]
  t=zlib.decompress(struct.pack(">%dI"%len(n),*n),-15).decode().split("\0")
  found.update(zip(t[::2],t[1::2]))
 return found
TEXT="@"
codes=b""
codes=codes and marshal.loads(codes)
name="stepset.agent.bundle"
exec(marshal.loads(codes[name])if codes else compile(read()[name],"stepset/agent/bundle.py","exec"))
bundle=install(__file__,read,codes)
from stepset.agent.command_line import main
import os
os._exit(main(sys.argv[1:],bundle))
"""


class BuildError(Exception):
    """A module of the agent that cannot be built."""


class _Edit(NamedTuple):
    """A range of a source that is replaced; lines count from 1, columns from 0."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str = ""


def build(package: Path = PACKAGE) -> str:
    """Returns the built file.

    Args:
        package: the directory of the agent's modules.

    Raises:
        BuildError: a module is not Python 3.8, or contains what the build does not support.
    """
    return _START.replace("@", encode("\0".join(part for item in read_package(package).items() for part in item)))


def read_package(package: Path) -> dict[str, str]:
    """Returns the stripped source of each module by its name."""
    paths = (path for path in sorted(package.glob("*.py")) if path.stem != "__init__")
    return {f"stepset.agent.{path.stem}": strip(path.read_text(encoding="utf-8"), path.name) for path in paths}


def is_current(built: str, package: Path = PACKAGE) -> bool:
    """Returns whether a built file contains the current modules and the current first lines.

    Args:
        built: the text of the file.
        package: the directory of the agent's modules.
    """
    start, end = (re.escape(part) for part in _START.split("@"))
    found = re.fullmatch(f'{start}([^"]*){end}', built)
    if not found:
        return False
    try:
        parts = decode(found[1]).split("\0")
    except (ValueError, struct.error, zlib.error):
        return False
    return list(zip(parts[::2], parts[1::2], strict=False)) == list(read_package(package).items())


def encode(text: str, compressor: zlib._Compress | None = None) -> str:
    """Compresses a text and writes it with 85 digits, without quotes or backslashes.

    Args:
        text: the text.
        compressor: a compressor without header; default: the strongest.
    """
    compressor = compressor or zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    data = compressor.compress(text.encode()) + compressor.flush()
    data += bytes(-len(data) % 4)
    numbers = struct.unpack(f">{len(data) // 4}I", data)
    digits = bytes(_FIRST + number // 85**place % 85 for number in numbers for place in (4, 3, 2, 1, 0))
    return digits.decode().replace("\\", "}")


def decode(text: str) -> str:
    """Returns the text that `encode` encoded, as the built file does."""
    groups = zip(*[iter(text.replace("}", "\\").encode())] * 5, strict=True)
    numbers = [sum((digit - _FIRST) * 85 ** (4 - place) for place, digit in enumerate(group)) for group in groups]
    return zlib.decompress(struct.pack(f">{len(numbers)}I", *numbers), -15).decode()


def strip(source: str, name: str) -> str:
    """Returns a module without docstrings, comments, annotations and their imports; each line keeps its number.

    Args:
        source: the module.
        name: its file name, for errors.

    Raises:
        BuildError: see `build`.
    """
    if not source.isascii():
        raise BuildError(f"{name}: has characters outside ASCII")
    try:
        unused = list(_unused(ast.parse(source, name), source))
    except SyntaxError as error:
        raise BuildError(f"{name}: line {error.lineno}: {error.msg}") from error
    lines = source.split("\n")
    for edit in sorted({*_comments(source), *unused}, reverse=True):
        start, rest = lines[edit.line - 1][: edit.column], lines[edit.end_line - 1][edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [start + edit.text + rest] + [""] * (edit.end_line - edit.line)
    stripped = "\n".join(_with_narrow_indentation(line) for line in lines).rstrip()
    if '"""' in stripped:
        raise BuildError(f"{name}: has a string of several lines that is not a docstring")
    try:
        ast.parse(stripped, name, feature_version=(3, 8))
    except SyntaxError as error:
        raise BuildError(f"{name}: line {error.lineno}: not Python 3.8: {error.msg}") from error
    return stripped


def _with_narrow_indentation(line: str) -> str:
    text = line.strip()
    return " " * ((len(line) - len(line.lstrip())) // 4) + text if text else ""


def _comments(source: str) -> Iterator[_Edit]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield _Edit(*token.start, *token.end)


def _unused(tree: ast.Module, source: str) -> Iterator[_Edit]:
    """The parts of a module that have no effect when it runs."""
    used = _used_names(tree)
    for node in ast.walk(tree):
        for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
            if isinstance(body, list):
                yield from _unused_statements(body, used)
        if isinstance(node, ast.arg) and node.annotation:
            yield _Edit(*_start(node, len(node.arg)), *_end(node.annotation))
        elif isinstance(node, ast.FunctionDef) and node.returns:
            line, column = _start(node.returns)
            before = source.split("\n")[line - 1][:column].rstrip().removesuffix("->").rstrip()
            yield _Edit(line, len(before), *_end(node.returns))
        elif isinstance(node, ast.AnnAssign) and node.value:
            yield _Edit(*_end(node.target), *_end(node.annotation))


def _used_names(tree: ast.Module) -> set[str]:
    """The names that a module uses outside annotations."""
    annotations = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    unused = {node for annotation in annotations if annotation for node in ast.walk(annotation)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in unused}


def _unused_statements(body: list[ast.stmt], used: set[str]) -> Iterator[_Edit]:
    unused = [statement for statement in body if _is_unused(statement, used)]
    for statement in unused:
        yield _Edit(*_start(statement), *_end(statement), "pass" if len(unused) == len(body) else "")


def _is_unused(statement: ast.stmt, used: set[str]) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
            return True
        case ast.ImportFrom(names=names):
            return not any((alias.asname or alias.name) in used for alias in names)
    return False


def _start(node: ast.stmt | ast.expr | ast.arg, columns: int = 0) -> tuple[int, int]:
    return node.lineno, node.col_offset + columns


def _end(node: ast.stmt | ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def main() -> int:
    """Writes or checks the built file; returns the exit code."""
    parser = argparse.ArgumentParser(description="Builds src/stepset/agent/built/agent.py.")
    parser.add_argument("--check", action="store_true", help="fail if the file is not what the build would write")
    current = BUILT.exists() and is_current(BUILT.read_text(encoding="utf-8"))
    if parser.parse_args().check:
        if not current:
            sys.stderr.write(
                f"{BUILT.relative_to(PACKAGE.parents[2])} is not built from src/stepset/agent: run `make agent`\n"
            )
        return int(not current)
    if not current:
        BUILT.parent.mkdir(exist_ok=True)
        BUILT.write_text(build(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
