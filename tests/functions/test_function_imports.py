"""The import statements that are shipped with a function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from stepset.functions.imports import imports_of
from stepset.functions.source import checked_source


@pytest.fixture
def defined(tmp_path: Path) -> Callable[..., FunctionType]:
    """Executes the text of a script and returns its function `train`. `cells` are cells executed before the text."""

    def define(text: str, *cells: str) -> FunctionType:
        path = tmp_path / "cell.py"
        path.write_text(text)
        names: dict[str, Any] = {"__name__": "__main__", "In": list(cells)}
        for cell in (*(each.replace("%time", "").replace("%load_ext autoreload", "") for each in cells), text):
            exec(compile(cell, str(path), "exec"), names)
        train = names["train"]
        assert isinstance(train, FunctionType)
        return train

    return define


@pytest.mark.parametrize(
    ("imports", "used", "statements"),
    [
        ("import json", "json.dumps", ("import json",)),
        ("import os.path as place", "place", ("import os.path as place",)),
        ("import os, sys as system", "system", ("import sys as system",)),
        ("from pathlib import PurePath, Path as P", "P", ("from pathlib import Path as P",)),
        ("import xml.etree.ElementTree\nimport xml.dom", "xml", ("import xml.etree.ElementTree", "import xml.dom")),
        ("try:\n    import tomllib\nexcept ImportError:\n    tomllib = None", "tomllib", ("import tomllib",)),
        ("from fractions import *", "Fraction", ("from fractions import Fraction",)),
        ("import json\nimport decimal as json", "json", ("import decimal as json",)),
    ],
)
def test_the_statements_are_those_that_import_the_current_value(
    defined: Callable[..., FunctionType], imports: str, used: str, statements: tuple[str, ...]
) -> None:
    name = used.partition(".")[0]
    for text, cells in ((f"{imports}\ndef train(): return {used}", ()), (f"def train(): return {used}", (imports,))):
        train = defined(text, *cells)
        assert imports_of(train, [name]) == {name: statements}
        assert checked_source(train).splitlines()[:-1] == [*statements]
        names: dict[str, Any] = {}
        exec(checked_source(train), names)
        assert names["train"]() == train()


def test_cells_with_magics_and_cells_of_other_languages_do_not_hide_an_import(
    defined: Callable[..., FunctionType],
) -> None:
    cells = ("%load_ext autoreload\nimport json", "%time\nimport csv")
    assert imports_of(defined("def train(): return json, csv", *cells), ["json", "csv"]) == {
        "csv": ("import csv",),
        "json": ("import json",),
    }
    train = defined("def train(): return json", "import json")
    train.__globals__["In"][:0] = ["%%bash\nif true; then echo; fi", "x = = 1", 7]
    assert imports_of(train, ["json"]) == {"json": ("import json",)}


@pytest.mark.parametrize(
    "value", ["3", "json.dumps({})", "type('Own', (), {})", "lambda: 1", "__import__('types').ModuleType('json')"]
)
def test_a_value_that_cannot_be_imported_has_no_statement(defined: Callable[..., FunctionType], value: str) -> None:
    assert imports_of(defined(f"import json\njson = {value}\ndef train(): return json"), ["json"]) == {}


def test_the_module_of_the_function_is_not_imported(defined: Callable[..., FunctionType]) -> None:
    train = defined("import sys\nitself = sys.modules['__main__']\ndef train(): return itself")
    assert isinstance(sys.modules["__main__"], ModuleType)
    assert imports_of(train, ["itself"]) == {}
