"""The examples in docstrings hold, and `log_ranks` is parsed."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.watch.present import failure_report, sentences, sources
from stepset.watch.present.sources import ranks_to_log


@pytest.mark.parametrize("module", [sentences, sources, failure_report], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", None), ("failed", set()), ("0", {0}), (3, {3}), ("0, 2", {0, 2}), ([1, "2"], {1, 2}), ((0,), {0})],
)
def test_log_ranks_selects_all_no_one_or_several_ranks(given: Any, expected: set[int] | None) -> None:
    assert ranks_to_log(given) == expected


@pytest.mark.parametrize("given", ["some", "", [], "-1", [1.5], "0;1", "²"])
def test_an_invalid_log_ranks_raises_bad_input(given: Any) -> None:
    with pytest.raises(BadInputError, match=r"log_ranks: .* is not known"):
        ranks_to_log(given)
