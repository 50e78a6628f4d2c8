"""The docstrings below the fields of a model, read from its source when they are needed.

pydantic can read them itself (`use_attribute_docstrings`), but does so whenever a model is imported. That takes a sixth
of the time that every command needs to import the job's models.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise


@cache
def field_docs(model: type) -> dict[str, str]:
    """Returns field -> docstring, for the fields of the class body that have one; {} if there is no source."""
    try:
        source = inspect.getsource(model)
    except OSError:
        return {}
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
