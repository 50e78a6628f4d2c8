"""The selection for CI: all scenarios through one interface, and every pair of an interface and a sort of fault."""

from __future__ import annotations

from itertools import product

from tests.contract.play import INTERFACES
from tests.contract.scenarios import FIVE_FAULTS, SCENARIOS
from tests.contract.selection import FULL, every_case, selected

CHOSEN = [(case.scenario.name, case.interface) for case in selected(SCENARIOS)]


def test_one_interface_plays_every_scenario() -> None:
    assert [name for name, interface in CHOSEN if interface == FULL] == [each.name for each in SCENARIOS]


def test_every_interface_plays_the_five_faults() -> None:
    assert set(CHOSEN) >= set(product((each.name for each in FIVE_FAULTS), INTERFACES))


def test_every_interface_plays_every_sort_of_fault_with_enough_scenarios() -> None:
    sorts = {each.name: each.sort for each in SCENARIOS}
    met = {(sorts[name], interface) for name, interface in CHOSEN}
    several = {sort for sort in sorts.values() if list(sorts.values()).count(sort) >= len(INTERFACES) - 1}
    assert met >= set(product(several, INTERFACES))
    assert several == {"credentials", "log", "object", "run", "server", "watch"}


def test_no_case_is_selected_twice_and_the_full_matrix_contains_more() -> None:
    assert len(CHOSEN) == len(set(CHOSEN))
    assert {(case.scenario.name, case.interface) for case in every_case(SCENARIOS)} > set(CHOSEN)
