"""Every odd job is rendered or refused as it states, and the API server accepts what is rendered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Set

import pytest

import tests.odd_jobs
from stepset.errors import BadInputError
from stepset.targets.request import TARGET_NAMES
from tests.cluster.api import Api
from tests.cluster.dry_run import refusals
from tests.odd_jobs import OddJob

PREFIX = "test_"
ODD_JOBS: dict[str, OddJob] = {
    name.removeprefix(PREFIX): importlib.import_module(f"{tests.odd_jobs.__name__}.{name}").ODD_JOB
    for _, name, _ in pkgutil.iter_modules(tests.odd_jobs.__path__)
    if name.startswith(PREFIX) and name != __name__.rpartition(".")[2]
}
EACH = pytest.mark.parametrize("odd_job", ODD_JOBS.values(), ids=ODD_JOBS)


@EACH
@pytest.mark.parametrize("target", TARGET_NAMES)
def test_is_rendered_or_refused_as_it_states(odd_job: OddJob, target: str) -> None:
    if target in odd_job.targets:
        assert odd_job.render(target)
        return
    with pytest.raises(BadInputError) as caught:
        odd_job.render(target)
    assert odd_job.refused[target] in str(caught.value)


@EACH
def test_states_what_is_expected_and_why(odd_job: OddJob) -> None:
    assert odd_job.expected.endswith(".")
    assert odd_job.source
    assert set(odd_job.refused) <= set(TARGET_NAMES)


@pytest.mark.cluster
def test_the_api_server_accepts_what_is_rendered(api: Api) -> None:
    assert refused(api, set(TARGET_NAMES) - {"volcano"}) == {}


@pytest.mark.cluster
@pytest.mark.disruptive
def test_the_api_server_accepts_what_is_rendered_for_volcano(volcano: None, api: Api) -> None:
    assert refused(api, {"volcano"}) == {}


def refused(api: Api, targets: Set[str]) -> dict[tuple[str, str], list[str]]:
    """Why the server refuses the objects of odd jobs, by the name of the job and the target."""
    found = {}
    for name, odd_job in ODD_JOBS.items():
        for target in targets & set(odd_job.targets):
            objects = odd_job.render(target, run=name.replace("_", "-")[:40], namespace=api.namespace)
            if lines := refusals(api, objects):
                found[name, target] = lines
    return found
