"""Builds src/stepset/agent/built/agent.py, the single file that runs in pods, from the package src/stepset/agent.

The file contains built/start.py and, in TEXT, all modules. `make lint` checks with `--check` that it is current.
"""

import ast
import base64
import io
import sys
import tokenize
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "stepset" / "agent"
BUILT = PACKAGE / "built" / "agent.py"
_HEAD = "#!/usr/bin/env python3\n# Built from src/stepset/agent; do not edit.\n"
_Edit = tuple[tuple[int, int], tuple[int, int], str]  # start and end (line, column) of the old text; the new text


def build(package: Path = PACKAGE, digits: str = "") -> str:
    """Returns the built file, with `digits` or all modules as TEXT. Raises SyntaxError for syntax after Python 3.8."""
    digits = digits or base64.b85encode(zlib.compress(packed(package).encode(), 9), pad=True).decode()
    return _HEAD + strip(package / "built" / "start.py").replace("@TEXT@", digits.replace("$", ","))


def is_current(built: str) -> bool:
    """Returns whether a built file contains the current modules. Versions of zlib compress the modules differently."""
    digits = built.partition('TEXT = "')[2].partition('"')[0]
    with suppress(ValueError, zlib.error):
        modules = zlib.decompressobj().decompress(base64.b85decode(digits.replace(",", "$"))).decode()
        return modules == packed() and built == build(digits=digits)
    return False


def packed(package: Path = PACKAGE) -> str:
    """Returns the text that TEXT contains: `read_modules`, with a tab for four spaces, which compresses better."""
    return read_modules(package).replace(" " * 4, "\t")


def read_modules(package: Path = PACKAGE) -> str:
    """Returns the name and the stripped source of each module, separated by NUL."""
    paths = [path.relative_to(package) for path in sorted(package.rglob("*.py")) if path.stem != "__init__"]
    names = {path: ".".join(path.with_suffix("").parts) for path in paths if path.parts[0] != "built"}
    return "\0".join(f"stepset.agent.{name}\0{strip(package / path)}" for path, name in names.items())


def strip(path: Path) -> str:
    """Returns a module without comments, docstrings, annotations and the imports for them. Lines keep their numbers."""
    source = path.read_text(encoding="ascii")
    edits = list(_without_hints(source, path.name))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    source = _edited(source, [*edits, *((t.start, t.end, "") for t in tokens if t.type == tokenize.COMMENT)])
    tree = ast.parse(source)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return _edited(source, [_edit(i, "0") for i in imports if used.isdisjoint(x.asname or x.name for x in i.names)])


def _without_hints(source: str, name: str) -> Iterator[_Edit]:
    for node in ast.walk(ast.parse(source, name, feature_version=(3, 8))):
        hint = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield _edit(node, "0")
        elif hint and getattr(node, "value", True):
            (line, column), end, _ = _edit(hint, "")
            yield (line, len(source.split("\n")[line - 1][:column].rstrip(" :->"))), end, ""


def _edit(node: ast.stmt | ast.expr, text: str) -> _Edit:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0), text


def _edited(source: str, edits: list[_Edit]) -> str:
    lines = source.split("\n")
    for (first, start), (last, end), text in sorted(edits, reverse=True):
        line = (lines[first - 1][:start] + text + lines[last - 1][end:]).rstrip()
        lines[first - 1 : last] = [line] + [""] * (last - first)
    return "\n".join(lines)


if __name__ == "__main__" and not (BUILT.exists() and is_current(BUILT.read_text(encoding="utf-8"))):
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"{BUILT.relative_to(PACKAGE.parents[2])} is not built from src/stepset/agent: run `make agent`")
    BUILT.write_text(build(), encoding="utf-8")
