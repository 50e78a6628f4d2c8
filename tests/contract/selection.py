"""Which scenarios are played through which interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.contract.play import INTERFACES, Case
from tests.contract.scenarios import Scenario

FULL = "call"
"""The interface through which everything is played: its process is the cheapest."""


def every_case(scenarios: Sequence[Scenario]) -> Iterator[Case]:
    """All combinations."""
    return (Case(scenario, interface) for scenario in scenarios for interface in INTERFACES)


def selected(scenarios: Sequence[Scenario]) -> Iterator[Case]:
    """The full matrix of one interface, and of the others so much that every pair of an interface and a sort occurs.

    Each scenario is played through the full interface and through one other, in turns for each sort of fault; an
    essential one is played through all. The order of the table decides, so that the selection is always the same.
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
