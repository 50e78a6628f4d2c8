"""Every odd job is rendered or refused as it states, and the API server accepts what is rendered."""

from __future__ import annotations

import importlib
import pkgutil

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
    refused = {}
    for name, odd_job in ODD_JOBS.items():
        # The cluster of the tests has no Volcano.
        for target in set(odd_job.targets) - {"volcano"}:
            objects = odd_job.render(target, run=name.replace("_", "-")[:40], namespace=api.namespace)
            refused[name, target] = refusals(api, objects)
    assert {each: lines for each, lines in refused.items() if lines} == {}
