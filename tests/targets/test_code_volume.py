"""`code` as a volume: mounted read-only where the ranks start, in every target, instead of a copy of the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.errors import BadInputError
from stepset.rendering import make_request, render
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.targets.request import TARGET_NAMES

CLAIM = {"claim": "training-code", "path": "digits/src"}
IMAGE = {"image": "registry.example/code:1"}


def objects_of(target: str, code: dict[str, str], **fields: Any) -> list[dict[str, Any]]:
    job = parse_job({"script": "train.py", "image": "image", "code": code, **fields})
    return render(make_request(job, read_sources(job, Path())), target)


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "containers" in value and "volumes" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from pod_specs(each)


def code_of(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    (volume,) = [each for each in spec["volumes"] if each["name"] == "stepset-code"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == "/stepset/code"]
    return volume, mount


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_every_target_mounts_a_claim_read_only_at_the_ranks_directory(target: str) -> None:
    objects = objects_of(target, CLAIM)
    (spec,) = pod_specs(objects)
    assert code_of(spec) == (
        {"name": "stepset-code", "persistentVolumeClaim": {"claimName": "training-code", "readOnly": True}},
        {"name": "stepset-code", "mountPath": "/stepset/code", "subPath": "digits/src", "readOnly": True},
    )
    assert not [each for each in objects if each["metadata"]["name"].endswith("-code")]
    (agent,) = [each for each in objects if each["metadata"]["name"].endswith("-agent")]
    assert json.loads(agent["data"]["node.json"])["work_dir"] == "/stepset/code"
    assert "/stepset/code/train.py" in json.dumps(objects)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_every_target_mounts_an_image(target: str) -> None:
    (spec,) = pod_specs(objects_of(target, IMAGE))
    assert code_of(spec) == (
        {"name": "stepset-code", "image": {"reference": "registry.example/code:1"}},
        {"name": "stepset-code", "mountPath": "/stepset/code", "readOnly": True},
    )


def test_pods_without_the_agent_start_in_the_volume() -> None:
    (spec,) = pod_specs(objects_of("job", CLAIM, framework="plain", agent=False))
    assert spec["containers"][0]["workingDir"] == "/stepset/code"
    code_of(spec)


def test_roles_do_not_mount_the_code() -> None:
    role = {"name": "logger", "image": "busybox", "command": ["sleep", "1"]}
    with_code = [any(v["name"] == "stepset-code" for v in s["volumes"])
                 for s in pod_specs(objects_of("jobset", CLAIM, roles=[role]))]  # fmt: skip
    assert sorted(with_code) == [False, True]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ({}, "code: exactly one of claim, image is required; none is given"),
        ({"claim": "a", "image": "b"}, "code: exactly one of claim, image is required; both are given"),
        (
            {"claim": "a", "path": "../b"},
            "code.path: '../b' is outside the volume; give a directory inside it, such as",
        ),
        ({"claim": "a", "path": "/b"}, "code.path: '/b' is outside the volume; give a directory inside it, such as"),
        ({"clam": "a"}, "code: unknown key 'clam'; did you mean 'claim'?"),
        (5, "code: "),
        ("", "code: "),
    ],
)
def test_an_invalid_volume_is_reported_in_one_line(code: Any, problem: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "train.py", "code": code})
    (line,) = caught.value.problems
    assert line.startswith(problem)


def test_an_invalid_name_of_a_claim_is_refused_before_anything_is_created() -> None:
    with pytest.raises(BadInputError, match=r"^code\.claim: 'A_B' "):
        objects_of("jobset", {"claim": "A_B"})


def test_a_local_run_is_refused_with_the_remedy() -> None:
    job = parse_job({"script": "train.py", "code": CLAIM})
    remedy = r"^code: a volume exists only on a cluster; for a local run set code to the directory on this machine$"
    with pytest.raises(BadInputError, match=remedy):
        LocalBackend().start(RunRequest(job, read_sources(job, Path())))


@pytest.mark.parametrize("code", [CLAIM, IMAGE, "src"])
def test_the_short_form_of_a_job_reads_back(code: Any) -> None:
    job = parse_job({"script": "train.py", "code": code})
    assert job.to_dict()["code"] == code
    assert parse_job(job.to_dict()) == job
