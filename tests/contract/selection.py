"""The selection of scenarios and interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.contract.play import INTERFACES, Case
from tests.contract.scenarios import Scenario

FULL = "call"
"""The interface that plays every scenario, because its process is the cheapest."""


def every_case(scenarios: Sequence[Scenario]) -> Iterator[Case]:
    """All combinations."""
    return (Case(scenario, interface) for scenario in scenarios for interface in INTERFACES)


def selected(scenarios: Sequence[Scenario]) -> Iterator[Case]:
    """All scenarios for one interface, and so many for the others that every pair of an interface and a sort occurs.

    Each scenario is played through the full interface and one other, which alternates within each sort of fault; an
    essential one is played through all. The order of the table determines the selection, so it is deterministic.
    """
    others = [each for each in INTERFACES if each != FULL]
    turns: dict[str, int] = {}
    for scenario in scenarios:
        yield Case(scenario, FULL)
        if scenario.essential:
            yield from (Case(scenario, interface) for interface in others)
        elif not scenario.heavy:
            turn = turns.get(scenario.sort, len(turns))
            turns[scenario.sort] = turn + 1
            yield Case(scenario, others[turn % len(others)])
