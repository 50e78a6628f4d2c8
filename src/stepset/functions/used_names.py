"""Finds the names that the source text of a function or class uses without defining them."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import CodeType

GET_IPYTHON = "get_ipython"
OF_IPYTHON = frozenset({"__IPYTHON__", "display", GET_IPYTHON})
"""The names that IPython adds to the builtins. These names are not available in ranks."""
_OF_EVERY_MODULE = frozenset(
    {*vars(builtins), "__file__", "__annotations__", "__module__", "__qualname__"} - OF_IPYTHON
)
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})


def captured_names(source: str) -> list[str]:
    """Returns the sorted names that a function uses without defining them. Builtins and `__name__` are left out.

    Names in annotations are also left out, because the program does not evaluate annotations. Names in default values
    of parameters are included.

    >>> captured_names("def train(epochs: Count, rate=RATE):\\n    return torch.ones(epochs) * len(str(rate))")
    ['RATE', 'torch']
    """
    module = compile(f"from __future__ import annotations\n{source}", "<function>", "exec", dont_inherit=True)
    codes = list(_codes(module))
    everywhere = {name for code in codes for name in _names(code, _STORES) if code is module or name in _globals(code)}
    captured = {name for code in codes for name in _names(code, _LOADS) - _names(code, _STORES)}
    return sorted(captured - everywhere - _OF_EVERY_MODULE)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and all code objects that it contains."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(code: CodeType, operations: frozenset[str]) -> set[str]:
    return {each.argval for each in dis.get_instructions(code) if each.opname in operations}


def _globals(code: CodeType) -> set[str]:
    return _names(code, frozenset({"STORE_GLOBAL"}))
