"""The owner of a run: the object with which its workload is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepset.rendering import make_request, render
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.targets.request import TARGET_NAMES

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits", "uid": "1"}


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_only_the_workload_has_the_given_owner(target: str) -> None:
    job = parse_job({"name": "digits", "image": "i:1", "command": ["true"], "framework": "plain"})
    sources = read_sources(job, Path())
    owned = render(make_request(job, sources, owned_by=WORKFLOW), target)
    assert owned[-1]["metadata"]["ownerReferences"] == [WORKFLOW]
    assert not any("ownerReferences" in each["metadata"] for each in owned[:-1])
    free = render(make_request(job, sources), target)
    assert not any("ownerReferences" in each["metadata"] for each in free)
    hashes = {each[-1]["metadata"]["annotations"]["stepset.dev/spec-hash"] for each in (owned, free)}
    assert len(hashes) == 1, "a second request with the same job finds the run"
