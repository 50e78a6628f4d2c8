"""Checks the syntax of a job's script.

A syntax error causes only a note, because the ranks can use a newer version of Python than stepset.
"""

from __future__ import annotations

import platform
import warnings
from pathlib import Path


def syntax_notes(script: str, text: bytes) -> tuple[str, ...]:
    """Returns a note if a script has a syntax error. Files without the suffix `.py` are not checked.

    Args:
        script: the path of the script, for the note.
        text: the content of the script. A comment in the first two lines can declare the encoding, as in PEP 263.

    >>> syntax_notes("train.py", b"x = 1\\nprint(x\\n")[0].partition(", according")[0]
    "script: train.py, line 2: syntax error: '(' was never closed"
    """
    if Path(script).suffix != ".py":
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler warns, for example, about invalid escapes
            compile(text, script, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        problem = error.msg
    except ValueError as error:  # Python 3.11 raises a ValueError for a NUL
        line, problem = "", str(error)
    except (RecursionError, MemoryError):  # the nesting is too deep for this version of Python
        return ()
    else:
        return ()
    return (
        f"script: {script}{line}: syntax error: {problem}, according to Python {platform.python_version()}; fix the"
        " script, unless the ranks use a newer version of Python",
    )
