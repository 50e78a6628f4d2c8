"""Fixtures of the contract suite: the proxy, and the plays, which run in parallel."""

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
from tests.contract.play import INTERFACES, Case, Group, Player, player

__all__ = ["cluster", "pytest_runtest_teardown", "testbed_choice"]  # fixtures, and the hook that repairs the cluster
AT_ONCE = int(os.environ.get("STEPSET_CONTRACT_AT_ONCE", "6"))
"""The number of parallel plays; most of a play is waiting."""
ALL = "STEPSET_CONTRACT"
"""The variable that selects the plays; `all`: every combination."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs tests that break the cluster last, after all other plays."""
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)


class Plays:
    """The plays of this session; the first request of a test starts them.

    Args:
        player: plays the cases.
        cases: all cases of the session, in the order of the tests.
    """

    def __init__(self, player: Player, cases: list[Case]) -> None:
        self._player, self._cases = player, cases
        # At least one thread per interface: the plays of one scenario may wait for each other.
        self._pool = ThreadPoolExecutor(max(AT_ONCE, len(INTERFACES)))
        self._futures: dict[Case, Future[tuple[View, list[str]]]] = {}
        self._groups: dict[str, Group] = {}
        self._submit([case for case in cases if not case.scenario.disruptive])

    def result(self, case: Case) -> tuple[View, list[str]]:
        """Waits for a case; returns the result of `Player.play`."""
        if case not in self._futures:
            # All plays of a disruptive scenario run together, after all others have ended.
            self._submit([each for each in self._cases if each.scenario is case.scenario])
        return self._futures[case].result()

    def close(self) -> None:
        """Cancels plays that have not started, and waits for the others."""
        self._pool.shutdown(cancel_futures=True)
        for group in self._groups.values():
            group.close()

    def _submit(self, cases: list[Case]) -> None:
        for case in cases:
            alike = [each for each in cases if each.scenario is case.scenario]
            group = self._groups.setdefault(case.scenario.name, Group(len(alike)))
            self._futures[case] = self._pool.submit(self._player.play, case, group)


@pytest.fixture(scope="session")
def plays(
    cluster: Cluster,  # the fixture
    testbed_choice: Choice,  # the fixture
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Plays]:
    """The plays of the selected tests."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    cases = [each["case"] for each in parameters if "case" in each]
    directory: Path = tmp_path_factory.mktemp("contract")
    certificates = directory / "certificates"
    certificates.mkdir()
    with running_proxy(certificates) as proxy, player(cluster, proxy, directory) as shared:
        playing = Plays(shared, [case for case in cases if isinstance(case, Case)])
        try:
            yield playing
        finally:
            playing.close()
