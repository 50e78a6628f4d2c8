"""Reads the docstrings below the fields of a model from the model's source code.

pydantic has an option for this purpose (`use_attribute_docstrings`). With this option, pydantic reads the source code
whenever a model is imported, which takes much time. This module reads the docstrings only when they are needed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise


@cache
def field_docs(model: type) -> dict[str, str]:
    """Returns a mapping from the names of a model's fields to their docstrings.

    The mapping includes the fields of base classes. Fields without a docstring are missing. If the source code is not
    available, the mapping is empty.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if "__annotations__" in vars(base) and base.__module__.startswith(__package__):
            found |= _own_docs(base)
    return found


def _own_docs(model: type) -> dict[str, str]:
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
