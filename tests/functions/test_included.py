"""The argument `include`: definitions and constants that are shipped with the source of a function."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.errors import BadInputError
from stepset.functions.source import checked_source

COUNT, PLACES, DATA = 2, (1, 2), Path("/data")
LOCK = threading.Lock()


class Last(list):  # type: ignore[type-arg]
    pass


class First(Last):
    size = COUNT


@functools.lru_cache
def even(number: int) -> bool:
    return number == 0 or odd(number - 1)


def odd(number: int) -> bool:
    return number != 0 and even(number - 1)


def train() -> list[Any]:
    return [First.size, even(4), PLACES, str(DATA)]


def locks() -> bool:
    return LOCK.locked()


def result_of(source: str, name: str = "train") -> Any:
    names: dict[str, Any] = {}
    exec(source, names)
    return names[name]()


def test_definitions_and_constants_follow_the_ones_that_they_use() -> None:
    include = ["First", "Last", even, odd, "PLACES", "DATA", "COUNT"]
    assert result_of(checked_source(train, include)) == [2, True, (1, 2), "/data"]


def test_the_message_names_everything_that_is_lacking_and_can_be_included() -> None:
    with pytest.raises(BadInputError) as caught:
        checked_source(train, ["PLACES"])
    assert "uses DATA, First, even from outside" in str(caught.value)
    assert str(caught.value).endswith(
        "or add include=['COUNT', 'DATA', 'First', 'Last', 'PLACES', 'even', 'odd'] to the call"
    )


@pytest.mark.parametrize(
    ("include", "message"),
    [
        (["Frist"], "include: 'Frist' is not defined in the module of train; did you mean 'First'?"),
        ([7], "include: '7' is not defined in the module of train; give the names of functions, classes and constants"),
        (
            ["LOCK"],
            "include: LOCK is of type lock; only functions, classes and JSON data can be included; save LOCK to a file,"
            " and pass the path in args",
        ),
    ],
)
def test_other_objects_cannot_be_included(include: list[Any], message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        checked_source(train, include)
    assert str(caught.value) == message


def test_an_imported_name_may_be_included_and_changes_nothing() -> None:
    assert "from pathlib import Path" in checked_source(lacks_a_path, ["Path"])


def lacks_a_path() -> str:
    return str(Path("a"))


def test_a_function_of_a_module_is_shipped_with_the_module() -> None:
    with pytest.raises(BadInputError, match=r"include: the whole module .* of train is shipped; leave include out"):
        stepset.render(train, include=["First"], image="a:1")


def test_only_a_function_has_included_definitions() -> None:
    with pytest.raises(BadInputError, match="unknown argument 'include'"):
        stepset.render({"script": "train.py"}, include=["First"])
