"""Builds src/stepset/agent/built/agent.py, the one file that runs in pods, from the package src/stepset/agent.

`make agent` writes the file, `make lint` checks that it is current (`--check`). Docstrings, comments, annotations and
the spaces that Python does not need are left out, and local variables have short names; every line keeps its number.
The sources are compressed (zlib) and written as text (base 91), which the first lines of the file decode. Compressors
differ between machines, so the check compares the decoded text.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import string
import sys
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "stepset" / "agent"
BUILT = PACKAGE / "built" / "agent.py"

_FIRST = 36
"""The digits 0 to 90 are the characters from `$` to `~`, but `!` stands for `$` and `#` for the backslash: tools that
replace `${NAME}` or `$(NAME)` in manifests must not find either. Two digits are 13 bits. The built file subtracts 3312,
which is 36 in each of the two digits."""

_ORDER = (
    *("stopping", "pod", "children", "rsh", "signals", "launch", "diagnosis", "command_line", "config", "errors"),
    *("rank", "setup", "process", "peers", "lines", "events", "loop", "bundle", "redact"),
)
"""The order of the modules in which they compress best: deflate finds repetitions within 32 KiB. Others follow."""

_IN_WORD = re.compile(r"\w")
"""Matches a character that continues a name, a number or the prefix of a string."""

# The agent is process 1 of its container, and the kernel discards signals for which process 1 has no handler. Signals
# that arrive while the agent starts are therefore blocked until its event loop handles them.
_START = r"""#!/usr/bin/env python3
# Built by tools/build_agent.py from src/stepset/agent; do not edit.
import marshal,sys
if sys.argv[1:2]==["run"]:
 try:import _signal as signal
 except ImportError:import signal
 signal.pthread_sigmask(signal.SIG_BLOCK,(signal.SIGTERM,signal.SIGINT,signal.SIGHUP))
def read(found={}):
 if not found:
  import zlib
  t=iter(TEXT.replace("!","$").replace("#","\\").encode())
  t="".join(format(a*91+b-3312,"013b")for a,b in zip(t,t))
  t=zlib.decompress(int(t,2).to_bytes(len(t)//8,"big"),-15).decode().split("\0")
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
    """A replacement of a range of a source; lines count from 1, columns from 0."""

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
    found = {path.stem: path for path in sorted(package.glob("*.py")) if path.stem != "__init__"}
    paths = [found.pop(name) for name in _ORDER if name in found] + [*found.values()]
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
    except (ValueError, OverflowError, zlib.error):
        return False
    return list(zip(parts[::2], parts[1::2], strict=False)) == list(read_package(package).items())


def encode(text: str, compressor: zlib._Compress | None = None) -> str:
    """Compresses a text and writes it with 91 digits, without quotes, backslashes and dollar signs.

    Args:
        text: the text.
        compressor: a compressor without header; default: the strongest one, zopfli if it is installed.
    """
    data = _compressed(text.encode()) if compressor is None else compressor.compress(text.encode()) + compressor.flush()
    pairs = -(-8 * len(data) // 13)
    data += bytes(13 * pairs // 8 - len(data))  # as many bytes as `decode` makes of the digits
    bits = f"{int.from_bytes(data, 'big'):0{13 * pairs}b}"
    numbers = [int(bits[at : at + 13], 2) for at in range(0, len(bits), 13)]
    digits = bytes(_FIRST + digit for number in numbers for digit in divmod(number, 91))
    return digits.decode().replace("$", "!").replace("\\", "#")


def _compressed(data: bytes) -> bytes:
    try:
        import zopfli.zlib  # 4 % smaller than the result of zlib
    except ImportError:
        compressor = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
        return compressor.compress(data) + compressor.flush()
    return bytes(zopfli.zlib.compress(data)[2:-4])  # without header and checksum


def decode(text: str) -> str:
    """Returns the text that `encode` encoded, as the built file does."""
    digits = iter(text.replace("!", "$").replace("#", "\\").encode())
    bits = "".join(f"{(a - _FIRST) * 91 + b - _FIRST:013b}" for a, b in zip(digits, digits, strict=True))
    return zlib.decompress(int(bits, 2).to_bytes(len(bits) // 8, "big"), -15).decode()


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
        tree = ast.parse(source, name)
    except SyntaxError as error:
        raise BuildError(f"{name}: line {error.lineno}: {error.msg}") from error
    short = {node: new for function in _functions(tree) for node, new in _short_names(function)}
    renamed = {_Edit(*_start(node), *_end(node), new) for node, new in short.items()}
    lines = source.split("\n")
    for edit in sorted({*_comments(source), *_unused(tree, source), *renamed}, reverse=True):
        start, rest = lines[edit.line - 1][: edit.column], lines[edit.end_line - 1][edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [start + edit.text + rest] + [""] * (edit.end_line - edit.line)
    stripped = _without_spaces("\n".join(lines)).rstrip()
    if '"""' in stripped:
        raise BuildError(f"{name}: has a string of several lines that is not a docstring")
    try:
        result = ast.parse(stripped, name, feature_version=(3, 8))
    except SyntaxError as error:
        raise BuildError(f"{name}: line {error.lineno}: not Python 3.8: {error.msg}") from error
    # Some versions of Python report wrong positions in f-strings.
    if [node.id for node in _used_names(result)] != [short.get(node, node.id) for node in _used_names(tree)]:
        raise BuildError(f"{name}: a local variable in an f-string cannot be renamed; use a simpler expression")
    return stripped


def _without_spaces(source: str) -> str:
    """Returns a module with one space for a level of indentation, and between tokens only where Python needs one."""
    lines = [""] * (source.count("\n") + 1)
    last: tokenize.TokenInfo | None = None
    level = 0
    for token in _tokens(source):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            level += 1 if token.type == tokenize.INDENT else -1
        elif token.string.strip():
            line = token.start[0] - 1
            if not lines[line]:
                starts = last is None or last.type == tokenize.NEWLINE
                lines[line] = " " * level if starts else ""
            elif last is not None and _IN_WORD.match(last.string[-1:]) and _IN_WORD.match(token.string):
                lines[line] += " "
            lines[line] += token.string
        if token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            last = token
    return "\n".join(lines)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of a module; an f-string is one token, as before Python 3.12."""
    started: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            started.append(token.start)
        if not started:
            yield token
        elif kind == "FSTRING_END":
            start = started.pop()
            if not started:
                text = token.line[start[1] : token.end[1]]
                yield tokenize.TokenInfo(tokenize.STRING, text, start, token.end, token.line)


def _comments(source: str) -> Iterator[_Edit]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield _Edit(*token.start, *token.end)


def _unused(tree: ast.Module, source: str) -> Iterator[_Edit]:
    """Yields the parts of a module that have no effect when it runs."""
    used = {node.id for node in _used_names(tree)}
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


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a module and the methods of its classes."""
    classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for body in (tree.body, *classes):
        yield from (node for node in body if isinstance(node, ast.FunctionDef))


def _short_names(function: ast.FunctionDef) -> Iterator[tuple[ast.Name, str]]:
    """Short names for a function's local variables; not for parameters, which callers may name."""
    names = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    fixed = set(_fixed_names(function))
    taken = fixed | {node.id for node in names}
    unused = (letter for letter in string.ascii_letters if letter not in taken)
    new: dict[str, str] = {}
    for node in names:
        if isinstance(node.ctx, ast.Store) and node.id not in fixed and node.id not in new and len(node.id) > 1:
            new[node.id] = next(unused, node.id)
    yield from ((node, new[node.id]) for node in names if node.id in new)


def _fixed_names(function: ast.FunctionDef) -> Iterator[str]:
    """The names in a function that are not plain local variables."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            yield node.name


def _used_names(tree: ast.Module) -> list[ast.Name]:
    """The names in a module outside annotations."""
    annotations = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    unused = {node for annotation in annotations if annotation for node in ast.walk(annotation)}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in unused]


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
