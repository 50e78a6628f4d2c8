"""`$(NAME)` has the same meaning locally as in a pod.

The rules are those Kubernetes documents for `env[].value`, `command` and `args` (k8s.io/api core/v1 Container): known
names are replaced once, unknown ones stay, `$$` is a plain `$`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.plan.expand import expand

KNOWN = {"NODES": "4", "RANK": "0", "NONE": "", "TEXT": "$(NODES) and $$", "my.var": "dot", "a b": "blank"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(NODES)", "4"),
        ("-n=$(NODES)/$(RANK)!", "-n=4/0!"),
        ("$(NODES)$(NODES)", "44"),
        ("[$(NONE)]", "[]"),
        ("$(my.var) $(a b)", "dot blank"),
        ("line\n$(NODES)\n", "line\n4\n"),
    ],
)
def test_a_known_name_is_replaced(text: str, expanded: str) -> None:
    assert expand(text, KNOWN) == expanded


@pytest.mark.parametrize("text", ["$(UNKNOWN)", "$(nodes)", "$()", "$( NODES)", "$(NODES )", "$(NO\nDES)"])
def test_an_unknown_name_is_unchanged(text: str) -> None:
    assert expand(text, KNOWN) == text


def test_an_expanded_value_is_not_expanded_again() -> None:
    assert expand("<$(TEXT)>", KNOWN) == "<$(NODES) and $$>"


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$$", "$"),
        ("$$(NODES)", "$(NODES)"),
        ("$$$(NODES)", "$4"),
        ("$$$$(NODES)", "$$(NODES)"),
        ("$$$$$(NODES)", "$$4"),
        ("$$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$NODES", "$NODES"),
        ("a$$b$$", "a$b$"),
    ],
)
def test_two_dollars_become_one(text: str, expanded: str) -> None:
    assert expand(text, KNOWN) == expanded


@pytest.mark.parametrize("text", ["$", "$NODES", "${NODES}", "$HOME/x", "$?", "a$", "(NODES)", "\\$", "100$ each"])
def test_a_single_dollar_is_unchanged(text: str) -> None:
    assert expand(text, KNOWN) == text


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(NODES", "$(NODES"),
        ("$(", "$("),
        ("$($($(", "$($($("),
        ("$(NODES) $(RANK", "4 $(RANK"),
        # The first `)` ends the name, and no name contains `$(`.
        ("$(A$(NODES))", "$(A$(NODES))"),
        ("$(A$$)", "$(A$$)"),
        ("\\$(NODES)", "\\4"),
        ("$($$", "$($"),
    ],
)
def test_unfinished_and_nested_references_are_unchanged(text: str, expanded: str) -> None:
    assert expand(text, KNOWN) == expanded


@given(st.text())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_can_be_escaped(text: str) -> None:
    assert expand(text.replace("$", "$$"), KNOWN) == text
