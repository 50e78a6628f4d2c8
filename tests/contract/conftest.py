"""Fixtures of the contract suite: the proxy, and plays that run at the same time as far as they may."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.conftest import cluster, pytest_runtest_teardown, testbed_choice
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice
from tests.contract.gates import running_proxy
from tests.contract.outcome import View
from tests.contract.play import INTERFACES, Case, Group, Theatre, theatre

__all__ = ["cluster", "pytest_runtest_teardown", "testbed_choice"]  # fixtures, and the hook that mends
AT_ONCE = int(os.environ.get("STEPSET_CONTRACT_AT_ONCE", "6"))
"""Plays at the same time: most of a play is waiting."""
ALL = "STEPSET_CONTRACT"
"""`all` plays every combination."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What breaks the cluster comes last, when nothing else is played on it."""
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)


class Plays:
    """The plays of this session; they begin with the first that a test asks for.

    Args:
        theatre: what they share.
        cases: all that will be asked for, in this order.
    """

    def __init__(self, theatre: Theatre, cases: list[Case]) -> None:
        self._theatre, self._cases = theatre, cases
        self._pool = ThreadPoolExecutor(max(AT_ONCE, len(INTERFACES)))  # those of one scenario may meet
        self._futures: dict[Case, Future[tuple[View, list[str]]]] = {}
        self._groups: dict[str, Group] = {}
        self._submit([case for case in cases if not case.scenario.disruptive])

    def result(self, case: Case) -> tuple[View, list[str]]:
        """What `Theatre.play` returned for a case."""
        if case not in self._futures:
            # Its plays come together, after all others have ended.
            self._submit([each for each in self._cases if each.scenario is case.scenario])
        return self._futures[case].result()

    def close(self) -> None:
        """Cancels what has not begun, and waits for the rest."""
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, cases: list[Case]) -> None:
        for case in cases:
            alike = [each for each in cases if each.scenario is case.scenario]
            group = self._groups.setdefault(case.scenario.name, Group(len(alike)))
            self._futures[case] = self._pool.submit(self._theatre.play, case, group)


@pytest.fixture(scope="session")
def plays(
    cluster: Cluster,  # the fixture
    testbed_choice: Choice,  # the fixture
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Plays]:
    """The plays of the tests that were selected."""
    cases = [item.callspec.params["case"] for item in request.session.items if hasattr(item, "callspec")]
    directory: Path = tmp_path_factory.mktemp("contract")
    certificates = directory / "certificates"
    certificates.mkdir()
    with running_proxy(certificates) as proxy, theatre(cluster, proxy, directory) as shared:
        playing = Plays(shared, [case for case in cases if isinstance(case, Case)])
        try:
            yield playing
        finally:
            playing.close()
