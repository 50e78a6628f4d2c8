"""Checks a job's script: its syntax, and whether it calls anything.

A syntax error causes only a note, because the ranks can use a newer version of Python than stepset.
"""

from __future__ import annotations

import ast
import platform
import warnings
from pathlib import Path

_SHOWN = 3
"""The maximum number of functions that a note names."""


def script_notes(script: str, text: bytes) -> tuple[str, ...]:
    """Returns a note if a script has a syntax error, or if the script defines functions and calls nothing.

    Files without the suffix `.py` are not checked.

    Args:
        script: the path of the script, for the note.
        text: the content of the script. A comment in the first two lines can declare the encoding, as in PEP 263.

    >>> script_notes("train.py", b"x = 1\\nprint(x\\n")[0].partition(", according")[0]
    "script: train.py, line 2: syntax error: '(' was never closed"
    """
    if Path(script).suffix != ".py":
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler warns, for example, about invalid escapes
            compile(text, script, "exec", dont_inherit=True)
            tree = ast.parse(text)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        problem = error.msg
    except ValueError as error:  # Python 3.11 raises a ValueError for a NUL
        line, problem = "", str(error)
    except (RecursionError, MemoryError):  # the nesting is too deep for this version of Python
        return ()
    else:
        return _definition_notes(script, tree)
    return (
        f"script: {script}{line}: syntax error: {problem}, according to Python {platform.python_version()}; fix the"
        " script, unless the ranks use a newer version of Python",
    )


def _definition_notes(script: str, tree: ast.Module) -> tuple[str, ...]:
    """Returns a note if a script contains only definitions, imports and constants, and defines a function."""
    names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    if not names or not all(map(_calls_nothing, tree.body)):
        return ()
    called = next((name for name in ("main", "train") if name in names), names[-1])
    defined = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return (
        f"script: {script} defines {defined}, but calls nothing at its top level, so the ranks end without training;"
        f' add a call at the end, such as: if __name__ == "__main__": {called}()',
    )


def _calls_nothing(statement: ast.stmt) -> bool:
    """Returns whether the execution of a statement at the top level calls no function, except for decorated classes."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.ClassDef | ast.Pass):
        return True
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = (*statement.args.defaults, *filter(None, statement.args.kw_defaults))
        return not statement.decorator_list and not any(map(_contains_call, defaults))
    return isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) and not _contains_call(statement)


def _contains_call(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call | ast.Await) for each in ast.walk(node))
