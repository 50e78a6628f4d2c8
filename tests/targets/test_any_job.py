"""A target renders any job, twice the same and with all references resolved, or rejects it with a reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from stepset.errors import BadInputError
from stepset.rendering import make_request, render
from stepset.sources import Sources
from stepset.sources.requirements import job_requirements
from stepset.spec import TrainingJob
from stepset.targets.dump import to_json, to_yaml
from stepset.targets.kinds import TARGETS
from stepset.targets.request import RenderRequest
from tests.strategies import jobs
from tests.targets.making import Manifest

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _request(job: TrainingJob) -> RenderRequest | None:
    """Returns a request for the job with an image; None if its framework rejects it."""
    job = job.model_copy(update={"image": job.image or "registry.example/train:1"})
    script = b"print()\n" if job.script is not None and job.code is None else None
    archive = b"packed" if job.code is not None else None
    try:
        sources = Sources(Path("/x"), Path("/x"), script, archive, requirements=job_requirements(job, None))
        return make_request(job, sources, namespace="ml")
    except BadInputError:
        return None


def _rendered(request: RenderRequest, target: str) -> list[Manifest] | None:
    try:
        return render(request, target)
    except BadInputError as error:
        assert all("\n" not in line and ": " in line for line in error.problems)
        return None


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{number}]")


def _pod_specs(objects: list[Manifest]) -> list[Manifest]:
    return [value for each in objects for _, value in _walk(each) if isinstance(value, dict) and "containers" in value]


@pytest.mark.parametrize("target", TARGETS)
@SLOW
@given(job=jobs())
def test_two_renders_are_equal_or_the_job_is_rejected_with_a_reason(target: str, job: TrainingJob) -> None:
    request = _request(job)
    if request is None:
        return
    objects = _rendered(request, target)
    assert objects == _rendered(request, target)
    if objects is not None:
        assert json.loads(to_json(objects))["items"] == objects
        assert list(yaml.load_all(to_yaml(objects), yaml.CSafeLoader)) == objects


@pytest.mark.parametrize("target", TARGETS)
@SLOW
@given(job=jobs())
def test_references_between_manifests_are_resolved(target: str, job: TrainingJob) -> None:
    request = _request(job)
    objects = None if request is None else TARGETS[target].render(request) if _rendered(request, target) else None
    if objects is None:
        return
    assert max(Counter((each["kind"], each["metadata"]["name"]) for each in objects).values()) == 1
    for each in objects:
        assert not [path for path, value in _walk(each) if value is None]
        assert each["metadata"]["namespace"] == "ml"
    made = {each["metadata"]["name"] for each in objects if each["kind"] in ("ConfigMap", "Secret")}
    added = {f"{job.name}-mpi-hostfile", f"{job.name}-mpi-ssh-auth"} if target == "trainjob" else set()
    pods = _pod_specs(objects)
    assert pods
    for pod in pods:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert len(volumes) == len(pod["volumes"])
        for container in pod["containers"]:
            mounts = container.get("volumeMounts", [])
            assert {mount["name"] for mount in mounts} <= volumes.keys()
            assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
            names = [row["name"] for row in container.get("env", [])]
            assert len(set(names)) == len(names)
        ours = (v for name, v in volumes.items() if name.startswith(("stepset-", "mpi-")))
        for volume in ours:
            name = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
            assert name is None or name in made | added


@SLOW
@given(jobs())
def test_the_spec_hash_is_that_of_all_fields_that_differ_from_their_defaults(job: TrainingJob) -> None:
    request = _request(job)
    if request is None:
        return
    job = request.job  # with an image
    nothing = hashlib.sha256().digest()
    expected = hashlib.sha256(job.model_dump_json(exclude_defaults=True).encode())
    for part in (request.sources.script, request.sources.archive):
        expected.update(hashlib.sha256(part).digest() if part else nothing)
    assert request.spec_hash == expected.hexdigest()
