"""A pattern of an ignore file needs time in proportion to the length of each name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stepset.sources.ignore import IgnoreRules

PATTERNS = ("*a*a*ab", "**a**a**ab", "/x/*a*a*ab", "*[ab]*[ab]*[ab]c", "*?*?*?b", "***?b")


def seconds(rules: IgnoreRules, name: str) -> float:
    """The least time of 20 matches."""
    found = []
    for _ in range(20):
        began = time.perf_counter()
        assert not rules.ignores(name, is_directory=False)
        found.append(time.perf_counter() - began)
    return min(found)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_time_of_a_match_is_linear(tmp_path: Path, pattern: str) -> None:
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    rules = IgnoreRules.of_directory(tmp_path)
    short, long = (f"x/{'a' * length}" for length in (150, 1200))
    assert seconds(rules, long) < 30 * seconds(rules, short)


def test_a_pattern_may_have_many_wildcards(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(f"{'*a' * 60}*b\n")
    rules = IgnoreRules.of_directory(tmp_path)
    assert rules.ignores("a" * 60 + "b", is_directory=False)
    assert not rules.ignores("a" * 59 + "b", is_directory=False)
    assert not rules.ignores("a" * 255, is_directory=False)
