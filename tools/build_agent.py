"""Builds src/stepset/agent/built/agent.py, the single file that runs in pods, from the package src/stepset/agent.

`make agent` writes the file. `make lint` checks with `--check` that the file matches the package.

The built file contains no docstrings, comments, annotations or unnecessary spaces. Local variables and private names
are replaced by short names. Every line keeps its number.

The sources are compressed with zlib and encoded in base 91. The first lines of the file decode the sources. Compressors
differ between machines. Therefore the check compares the decoded sources.
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
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "stepset" / "agent"
BUILT = PACKAGE / "built" / "agent.py"

_FIRST = 36
"""The code of the character that represents the digit 0.

The digits 0 to 90 are the characters from `$` to `~`. However, `!` is written instead of `$`, and `#` instead of the
backslash, because some tools replace `${NAME}` or `$(NAME)` in manifests. Two digits represent 13 bits. The built file
subtracts 3312, because the code of each of the two characters is 36 larger than its digit."""

_ORDER = (
    *("stopping", "pod", "children", "rsh", "signals", "launch", "diagnosis", "command_line", "config", "errors"),
    *("rank", "setup", "process", "peers", "lines", "events", "loop", "bundle", "redact"),
)
"""The first modules of the file, in the order in which they compress best. All other modules follow.

The order matters because deflate finds repetitions only within 32 KiB."""

_IN_WORD = re.compile(r"\w")
"""Matches a character that continues a name, a number or the prefix of a string."""

# The agent is process 1 of its container. The kernel discards a signal if process 1 has no handler for the signal.
# Therefore SIGTERM, SIGINT and SIGHUP are blocked until the event loop of the agent can handle these signals.
_START = r"""#!/usr/bin/env python3
# Built from src/stepset/agent; do not edit.
import marshal,os,sys
if sys.argv[1:2]==["run"]:
 try:import _signal as signal
 except ImportError:import signal
 signal.pthread_sigmask(signal.SIG_BLOCK,(15,2,1))
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
codes=codes and marshal.loads(codes);name="stepset.agent.bundle"
exec(marshal.loads(codes[name])if codes else compile(read()[name],"stepset/agent/bundle.py","exec"))
bundle=install(__file__,read,codes)
from stepset.agent.command_line import main
os._exit(main(sys.argv[1:],bundle))
"""


class BuildError(Exception):
    """A module of the agent cannot be built."""


class _Edit(NamedTuple):
    """A replacement of a part of a module's source. The first line is 1, and the first column is 0."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str = ""


def build(package: Path = PACKAGE) -> str:
    """Returns the text of the built file.

    Args:
        package: the directory of the agent's modules.

    Raises:
        BuildError: a module is not valid in Python 3.8, or contains code that the build does not support.
    """
    return _START.replace("@", encode("\0".join(part for item in read_package(package).items() for part in item)))


def read_package(package: Path) -> dict[str, str]:
    """Returns a mapping from the name of each module to its source after `strip`."""
    found = {path.stem: path for path in sorted(package.glob("*.py")) if path.stem != "__init__"}
    paths = [found.pop(name) for name in _ORDER if name in found] + [*found.values()]
    return {f"stepset.agent.{path.stem}": strip(path.read_text(encoding="utf-8"), path.name) for path in paths}


def is_current(built: str, package: Path = PACKAGE) -> bool:
    """Returns whether a built file consists of `_START` and the current modules.

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
    """Compresses a text, and returns the result encoded in base 91.

    The returned text contains no quotes, no backslashes and no dollar signs.

    Args:
        text: the text.
        compressor: a compressor that writes no header. Default: zopfli if it is installed, and otherwise zlib.
    """
    data = _compressed(text.encode()) if compressor is None else compressor.compress(text.encode()) + compressor.flush()
    pairs = -(-8 * len(data) // 13)
    data += bytes(13 * pairs // 8 - len(data))  # `decode` returns this number of bytes
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
    """Returns the text that `encode` has encoded. The built file uses the same algorithm."""
    digits = iter(text.replace("!", "$").replace("#", "\\").encode())
    bits = "".join(f"{(a - _FIRST) * 91 + b - _FIRST:013b}" for a, b in zip(digits, digits, strict=True))
    return zlib.decompress(int(bits, 2).to_bytes(len(bits) // 8, "big"), -15).decode()


def strip(source: str, name: str) -> str:
    """Returns the source of a module without docstrings, comments, annotations and the imports for annotations.

    Each line keeps its number.

    Args:
        source: the source of the module.
        name: the file name of the module, for error messages.

    Raises:
        BuildError: see `build`.
    """
    if not source.isascii():
        raise BuildError(f"{name}: has characters outside ASCII")
    try:
        tree = ast.parse(source, name)
    except SyntaxError as error:
        raise BuildError(f"{name}: line {error.lineno}: {error.msg}") from error
    local = {node: new for function in _functions(tree) for node, new in _short_names(function)}
    private = _short_private_names(tree, {*re.findall(r"\w+", source), *local.values()})
    renamed = {_Edit(*_start(node), *_end(node), new) for node, new in local.items()}
    renamed |= set(_renamed_private(tree, private))
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
    if _words(result) != _words(tree, {node: private.get(word, word) for node, word in _worded(tree)} | local):
        raise BuildError(f"{name}: a name in an f-string cannot be renamed; use a simpler expression")
    return stripped


def _without_spaces(source: str) -> str:
    """Returns the source of a module with as few spaces as possible.

    Each level of indentation has one space. Two tokens are separated by a space only if Python needs it.
    """
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
    """Yields the tokens of a module. An f-string is a single token, as in Python versions before 3.12."""
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
    """Yields the parts of a module that have no effect when the module runs."""
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
    """Yields the functions of a module and the methods of its classes."""
    classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for body in (tree.body, *classes):
        yield from (node for node in body if isinstance(node, ast.FunctionDef))


def _short_names(function: ast.FunctionDef) -> Iterator[tuple[ast.Name, str]]:
    """Yields the occurrences of a function's local variables with their short names.

    Parameters keep their names, because callers may pass them by name.
    """
    names = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    fixed = set(_fixed_names(function))
    taken = fixed | {node.id for node in names}
    unused = (letter for letter in string.ascii_letters if letter not in taken)
    new: dict[str, str] = {}
    for node in names:
        if isinstance(node.ctx, ast.Store) and node.id not in fixed and node.id not in new and len(node.id) > 1:
            new[node.id] = next(unused, node.id)
    yield from ((node, new[node.id]) for node in names if node.id in new)


def _short_private_names(tree: ast.Module, taken: set[str]) -> dict[str, str]:
    """Returns short names for the attributes and constants whose names begin with an underscore.

    Only the module that defines these attributes and constants uses them. Functions and classes keep their names,
    because tracebacks contain these names.

    Args:
        tree: the syntax tree of the module.
        taken: names that the module already uses.
    """
    defined = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_own(node)}
    defined |= {word for node, word in _worded(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    fixed = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    fixed |= {word for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for word in node.names}
    uses = Counter(word for _, word in _worded(tree) if word in defined - fixed and re.match(r"_[a-zA-Z]\w", word))
    letters = string.ascii_uppercase + string.ascii_lowercase
    unused = (name for name in (*string.ascii_uppercase, *(f"_{letter}" for letter in letters)) if name not in taken)
    return {word: next(unused, word) for word, _ in uses.most_common()}


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _renamed_private(tree: ast.Module, new: dict[str, str]) -> Iterator[_Edit]:
    for node, word in _worded(tree):
        if word in new:
            line, end = _end(node)
            yield _Edit(line, end - len(word), line, end, new[word])


def _worded(tree: ast.Module) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    """Yields each name node and attribute node of a module with its identifier. Nodes in annotations are omitted."""
    outside = _annotated(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in outside:
            yield node, node.id if isinstance(node, ast.Name) else node.attr


def _words(tree: ast.Module, new: Mapping[Any, str] | None = None) -> list[str]:
    return [(new or {}).get(node, word) for node, word in _worded(tree)]


def _fixed_names(function: ast.FunctionDef) -> Iterator[str]:
    """Yields the names in a function that are not ordinary local variables."""
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
    """Returns the name nodes of a module. Nodes in annotations are omitted."""
    unused = _annotated(tree)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in unused]


def _annotated(tree: ast.Module) -> set[ast.AST]:
    """Returns the nodes that belong to annotations."""
    annotations = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    return {node for annotation in annotations if annotation for node in ast.walk(annotation)}


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
    """Writes or checks the built file, and returns the exit code."""
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
