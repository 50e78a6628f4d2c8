"""What is on the server while a run is being submitted."""

from __future__ import annotations

import pytest

from stepset.targets.identity import SUBMISSION
from tests.cluster.runs import Runs

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(("agent", "needs_more"), [(False, False), (True, True)])
def test_a_run_counts_as_half_submitted_only_while_something_is_still_to_come(
    runs: Runs, agent: bool, needs_more: bool
) -> None:
    command = ["sh", "-c", "sleep 1"]
    made, _ = runs.backend().make(runs.request(command=command, agent=agent))
    # As the server answered to the first request.
    assert (SUBMISSION in made.workload["metadata"]["labels"]) is needs_more
    assert SUBMISSION not in runs.get("jobset/run")["metadata"]["labels"]
