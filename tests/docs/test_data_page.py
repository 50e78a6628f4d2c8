"""docs/guides/data.md: the jobs whose code is in object storage become pods that download it first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.code_blocks import ROOT, blocks

from stepset.errors import BadInputError
from stepset.rendering import make_request, render
from stepset.sources import read_sources
from stepset.spec.load import parse_job
from stepset.targets.request import TARGET_NAMES

PAGE = ROOT / "docs/guides/data.md"
DOWNLOAD = ["aws", "s3", "sync", "s3://bucket/digits/v3"]


def job_with(text: str) -> dict[str, Any]:
    """The job of the page's section on code in object storage that contains a text."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition("### Code in object storage\n")
    assert found
    (block,) = [each for each in blocks(PAGE) if each.language == "yaml" and text in each.text and each.text in section]
    return dict(yaml.safe_load(block.text))


def rendered(fields: dict[str, Any], target: str, base: Path) -> list[dict[str, Any]]:
    job = parse_job(fields)
    return render(make_request(job, read_sources(job, base)), target)


def pod_specs(value: Any) -> list[dict[str, Any]]:
    """The pod specs anywhere in objects of any kind."""
    if isinstance(value, list):
        return [found for each in value for found in pod_specs(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if "containers" in value else []
    return own + [found for each in value.values() for found in pod_specs(each)]


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in spec["containers"] if each["name"] == "node"]
    return dict(found)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_in_every_target_each_pod_of_a_node_downloads_the_code_to_the_path_of_its_modules(
    tmp_path: Path, target: str
) -> None:
    objects = rendered(job_with("initContainers"), target, tmp_path)
    assert json.dumps({"name": "PYTHONPATH", "value": "/code"}) in json.dumps(objects)
    specs = pod_specs(objects)
    assert specs
    for spec in specs:
        (fetch,) = [each for each in spec["initContainers"] if each["name"] == "fetch"]
        assert fetch["command"] == [*DOWNLOAD, "/code"]
        mount = {"name": "code", "mountPath": "/code"}
        assert mount in fetch["volumeMounts"] and mount in container(spec)["volumeMounts"]


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_with_roles_the_nodes_start_in_the_directory_after_the_download(tmp_path: Path, target: str) -> None:
    objects = rendered(job_with("roles:"), target, tmp_path)
    (jobs,) = [each["spec"]["replicatedJobs"] for each in _specs(objects) if "replicatedJobs" in each["spec"]]
    fetch, node = ({each["name"]: each for each in jobs}[name] for name in ("fetch", "node"))
    assert {"name": "fetch", "status": "Complete"} in node["dependsOn"]
    (downloading,), (training,) = pod_specs(fetch), pod_specs(node)
    assert container(downloading)["command"] == [*DOWNLOAD, "/code/digits/v3"]
    (mount,) = [each for each in container(training)["volumeMounts"] if each["name"] == "stepset-code"]
    assert (mount["subPath"], mount["readOnly"]) == ("digits/v3", True)


@pytest.mark.parametrize("target", sorted({*TARGET_NAMES} - {"jobset", "trainjob"}))
def test_other_targets_refuse_such_roles(tmp_path: Path, target: str) -> None:
    with pytest.raises(BadInputError, match=r"^roles\.fetch"):
        rendered(job_with("roles:"), target, tmp_path)


def _specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects with a spec; of a TrainingRuntime, the template of its JobSet."""
    found = [each for each in objects if "spec" in each]
    return found + [each["spec"]["template"] for each in found if "template" in each["spec"]]
