"""A function whose source is shipped must not use names from outside except imports; they are rejected by name."""

from __future__ import annotations

import tempfile
import xml.etree as tree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.functions.definition import source_of as text_of
from stepset.functions.source import captured_names, check_captured, checked_source, function_file
from stepset.functions.source import checked_source as source_of

RATE = 0.1
NOTHING = None
MODEL = object()
BATCHES = [object()]


def uses_a_global() -> float:
    return RATE


def test_a_file_that_ipykernel_writes_for_its_debugger_is_a_notebook_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for directory, cell in (("ipykernel_42", True), ("project", False)):
        file = tmp_path / directory / "1234.py"
        file.parent.mkdir()
        file.write_text("def helper(): ...\ndef train(): return helper()\n")
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(file.read_text(), file, "exec"), names)
        assert function_file(names["train"]) == ("" if cell else str(file.resolve()))


def test_a_global_is_rejected_by_name() -> None:
    with pytest.raises(BadInputError, match="uses_a_global uses RATE from outside"):
        checked_source(uses_a_global)


def test_a_variable_of_an_outer_function_is_rejected_by_name() -> None:
    factor = 2

    def train() -> int:
        return factor

    with pytest.raises(BadInputError, match="train uses factor from outside"):
        checked_source(train)


def test_a_lambda_is_rejected() -> None:
    with pytest.raises(BadInputError, match="lambda"):
        checked_source(lambda: 1)


def test_an_async_function_and_a_generator_are_rejected() -> None:
    async def fit() -> int:
        return 1

    def values() -> Iterator[int]:
        yield 1

    with pytest.raises(BadInputError, match="fit is an async function, which the ranks do not await; define it with"):
        checked_source(fit)
    with pytest.raises(BadInputError, match="values is a generator, which the ranks do not iterate over; return a"):
        checked_source(values)


@pytest.mark.parametrize(
    ("source", "captured"),
    [
        ("def f(a: Count) -> Count:\n    return len(a)", []),
        ("def f(a=RATE):\n    return a", ["RATE"]),
        ("def f():\n    import torch\n    def g():\n        return torch, f\n    return g", []),
        ("def f():\n    class A:\n        x = 1\n        y = x\n    return A", []),
        ("def f():\n    global count\n    count = 1\n    return count", []),
        ("def f():\n    return [torch for _ in range(2)]", ["torch"]),
    ],
)
def test_captured_names(source: str, captured: list[str]) -> None:
    assert captured_names(source) == captured


def load() -> float:
    return RATE


def uses_a_helper() -> float:
    return load()


def uses_a_helper_and_a_global() -> float:
    return load() * RATE


def uses_imports() -> object:
    return [tempfile, source_of, Path(), tree, NOTHING]


def test_imports_are_shipped_with_the_function() -> None:
    with pytest.raises(BadInputError) as caught:
        checked_source(uses_imports)
    assert str(caught.value) == (
        "function: uses_imports uses NOTHING from outside, and only its own source is shipped; import or define it"
        " inside uses_imports, or add include=['NOTHING'] to the call"
    )


def test_the_message_of_a_decorator_contains_the_imports_that_the_function_needs() -> None:
    captured = captured_names(text_of(uses_imports))
    with pytest.raises(BadInputError) as caught:
        check_captured(uses_imports, captured, "pass {them} in args, or import uses_imports from a module")
    assert str(caught.value) == (
        "function: uses_imports uses NOTHING, Path, source_of, tempfile, tree from outside, and only its own source is"
        " shipped; add 'from pathlib import Path', 'from stepset.functions.source import checked_source as source_of',"
        " 'import tempfile', 'import xml.etree as tree' inside uses_imports;"
        " import or define NOTHING inside uses_imports, pass NOTHING in args, or import uses_imports from a module"
    )


def uses_objects() -> object:
    return [MODEL, BATCHES]


def uses_a_helper_and_an_object() -> object:
    return [load(), MODEL]


def test_an_object_that_is_not_json_is_saved_to_a_file() -> None:
    with pytest.raises(BadInputError) as caught:
        checked_source(uses_objects)
    assert str(caught.value).endswith(
        "define them inside uses_objects, save BATCHES, MODEL to a file and pass their paths in args, or import"
        " uses_objects from a module"
    )
    with pytest.raises(BadInputError) as caught:
        checked_source(uses_a_helper_and_an_object)
    assert str(caught.value).endswith(
        "add include=['RATE', 'load'] to the call for load, or save MODEL to a file and pass its path in args"
    )


def test_a_helper_can_be_included_with_what_it_needs() -> None:
    with pytest.raises(BadInputError) as caught:
        checked_source(uses_a_helper)
    assert str(caught.value).endswith("define it inside uses_a_helper, or add include=['RATE', 'load'] to the call")
    with pytest.raises(BadInputError, match="uses RATE, load from outside"):
        checked_source(uses_a_helper_and_a_global)
