"""Every interface reports the same outcome of a run, and each of its lines once, under all faults of the server.

docs/testing/contract.md describes the scenarios. `pytest tests/contract -k "401 and trigger"` plays some of them,
STEPSET_CONTRACT=all every combination.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.contract.conftest import ALL, Plays
from tests.contract.interfaces import KFP_PYTHON
from tests.contract.play import Case
from tests.contract.scenarios import SCENARIOS
from tests.contract.selection import every_case, selected

pytestmark = pytest.mark.cluster

GATE = "server hangs while watches are open"
"""The scenario that `make test-gate` plays through each interface."""


def cases() -> list[pytest.ParameterSet]:
    """The cases as parameters of a test."""
    chosen = every_case(SCENARIOS) if os.environ.get(ALL) == "all" else selected(SCENARIOS)
    return [pytest.param(case, id=case.id, marks=[*_marks(case)]) for case in chosen]


def _marks(case: Case) -> Iterator[pytest.MarkDecorator]:
    if case.scenario.disruptive:
        yield pytest.mark.disruptive
    if case.scenario.name == GATE:
        yield pytest.mark.gate


@pytest.mark.parametrize("case", cases())
def test_a_run_is_followed_to_its_end_and_each_line_is_shown_once(case: Case, plays: Plays) -> None:
    if case.interface == "kfp" and not KFP_PYTHON.exists():
        pytest.skip("needs KFP's environment: make setup-kfp")
    view, blocked = plays.result(case)
    expected = case.scenario.expected
    assert view.outcome is not None
    sources = [f"rank {rank}" for rank in range(case.scenario.ranks)]
    wrong = [f"{source}: {error}" for source in sources if (error := expected.numbered(view.lines.get(source, [])))]
    wrong.append(expected.differs(view.outcome, view.lines.get("rank 0", [])))
    for pattern in expected.messages:
        if (count := sum(bool(re.search(pattern, each)) for each in view.messages)) != 1:
            wrong.append(f"{pattern!r} is reported {count} times")
    wrong += [
        f"reported wrongly: {each}" for each in view.messages for text in expected.absent if re.search(text, each)
    ]
    if view.memory_mb > expected.memory_mb:
        wrong.append(f"the process uses {view.memory_mb:.0f} MB of memory")
    wrong += [f"the event loop was blocked: {each}" for each in blocked]
    problems = [each for each in wrong if each]
    assert not problems, "\n".join([*problems, view.shown()])
