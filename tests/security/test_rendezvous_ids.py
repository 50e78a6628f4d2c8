"""The rendezvous ID of an elastic run is random, equal in all its pods, and in no pod's manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.submit.generated import with_generated_values
from stepset.backends.local import LocalBackend
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.targets.names import RENDEZVOUS_KEY, placeholder
from stepset.targets.request import TARGET_NAMES
from tests.targets.making import rendered

ELASTIC: dict[str, Any] = {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}, "num_nodes": 2}
TARGETS = TARGET_NAMES


def agent_config_map(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-agent"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_pods_read_the_id_from_a_config_map(target: str) -> None:
    objects = rendered(target, **ELASTIC)
    config_map = agent_config_map(objects)
    source = {"configMapKeyRef": {"name": config_map["metadata"]["name"], "key": RENDEZVOUS_KEY}}
    entry = {"name": "PET_RDZV_ID", "valueFrom": source}
    assert json.dumps(entry) in json.dumps(objects)
    assert config_map["data"][RENDEZVOUS_KEY] == placeholder(RENDEZVOUS_KEY)  # `stepset render` is reproducible
    assert objects == rendered(target, **ELASTIC)


def test_every_submission_generates_another_id() -> None:
    config_map = agent_config_map(rendered("jobset", **ELASTIC))
    ids = [with_generated_values(config_map)["data"][RENDEZVOUS_KEY] for _ in range(2)]
    assert ids[0] != ids[1]
    assert all(len(each) == 32 for each in ids)


def test_an_id_of_the_job_file_is_used_unchanged() -> None:
    elastic = {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2, "rdzv_id": "ours"}}
    objects = rendered("jobset", framework=elastic, num_nodes=2)
    assert json.dumps({"name": "PET_RDZV_ID", "value": "ours"}) in json.dumps(objects)
    assert RENDEZVOUS_KEY not in agent_config_map(objects)["data"]


def test_a_job_without_a_rendezvous_by_id_has_none() -> None:
    assert RENDEZVOUS_KEY not in agent_config_map(rendered("jobset", framework="torch", num_nodes=2))["data"]


@pytest.mark.local
def test_the_nodes_of_a_local_run_share_an_id_that_differs_between_runs(tmp_path: Path) -> None:
    command = ["sh", "-c", f"echo $PET_RDZV_ID >> {tmp_path}/ids"]
    job = parse_job({"name": "job", "command": command, **ELASTIC})
    for _ in range(2):
        status = LocalBackend(tmp_path / "home", grace=1.0).start(RunRequest(job, read_sources(job, tmp_path))).wait()
        assert status.failure is None
    ids = (tmp_path / "ids").read_text().split()
    assert len(ids) == 4
    assert len(set(ids)) == 2
    assert all(len(each) == 32 for each in ids)
