"""A field of a manifest is mapped to the field of the job file that determines it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.frameworks import make_plan
from stepset.spec import load_job
from tests.targets.golden import EXAMPLES, pairs, render_example
from tests.targets.making import rendered, request

JOB: dict[str, Any] = {
    "env": {"LR": "0.1"},
    "storage": [{"path": "/data", "claim": "datasets"}],
    "roles": [{"name": "watch", "command": ["watch"], "env": {"EVERY": "5"}}],
}
ROLE = "spec.replicatedJobs[0].template.spec.template.spec"
POD = "spec.replicatedJobs[1].template.spec.template.spec"


def mapped(kind: str, path: str, target: str = "jobset", **job: Any) -> str | None:
    given = request(**{**JOB, **job})
    manifest = next(each for each in rendered(target, **{**JOB, **job}) if each["kind"] == kind)
    return FieldMapper(given.job, given.plan, "cli").field(manifest, path)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("metadata.name", "name"),
        ("metadata.labels", "labels"),
        ("spec.network.subdomain", "network.subdomain"),
        ("spec.ttlSecondsAfterFinished", "ttl"),
        ("spec.replicatedJobs[0].template.spec.activeDeadlineSeconds", "deadline"),
        ("spec.replicatedJobs[0].template.spec.completions", "num_nodes"),
        (f"{POD}.containers[0].image", "image"),
        (f"{POD}.containers[0].resources.limits[cpu]", "resources_per_node"),
        (f"{POD}.containers[0].command[2]", "command"),
        (f"{POD}.tolerations[0].effect", "scheduling.tolerations"),
        (f"{POD}.serviceAccountName", "service_account"),
        (f"{POD}.dnsPolicy", "pod_template.dnsPolicy"),
        (f"{POD}.containers[0].securityContext.runAsUser", "pod_template.containers.node.securityContext.runAsUser"),
        (f"{ROLE}.containers[0].image", "roles.watch.image"),
        (f"{ROLE}.containers[0].resources.requests", "roles.watch.resources"),
        ("spec.replicatedJobs.template.spec.template.spec.containers.image", "image"),
        ("spec.startupPolicy", None),
        ("spec.replicatedJobs[9].template.spec.template.spec.dnsPolicy", None),
    ],
)
def test_fields_of_a_jobset(path: str, field: str | None) -> None:
    assert mapped("JobSet", path) == field


def test_the_resources_of_a_launcher_are_its_own_unless_it_is_a_node() -> None:
    path = "spec.replicatedJobs[2].template.spec.template.spec.containers[0].resources.limits[cpu]"
    assert mapped("JobSet", path, framework="mpi") == "framework.launcher_resources"
    as_node = {"kind": "mpi", "run_launcher_as_node": True}
    assert mapped("JobSet", path, framework=as_node, num_nodes=2) == "resources_per_node"


@pytest.mark.parametrize("whole", [True, False])
def test_a_sidecar_is_named_where_the_job_file_has_it(whole: bool) -> None:
    spec = {"containers": [{"name": "exporter", "image": "e"}], "initContainers": [{"name": "fetch", "image": "f"}]}
    place = "pod_template.spec" if whole else "pod_template"
    given = {"pod_template": {"spec": spec} if whole else spec}
    path = f"{POD}.initContainers[{{}}].image"
    assert mapped("JobSet", path.format(0), **given) == f"{place}.initContainers.fetch.image"
    assert mapped("JobSet", path.format(1), **given) == f"{place}.containers.exporter.image"


def test_variables_and_volumes_are_named() -> None:
    objects = rendered(**JOB)
    for row, field in ((1, "env.LR"), (0, "roles.watch.env.EVERY")):
        spec = objects[-1]["spec"]["replicatedJobs"][row]["template"]["spec"]["template"]["spec"]
        names = [each["name"] for each in spec["containers"][0]["env"]]
        place = f"spec.replicatedJobs[{row}].template.spec.template.spec"
        assert mapped("JobSet", f"{place}.containers[0].env[{names.index(field.rpartition('.')[2])}].name") == field
        volumes = ["persistentVolumeClaim" in each for each in spec["volumes"]]
        assert mapped("JobSet", f"{place}.volumes[{volumes.index(True)}].persistentVolumeClaim.claimName") == "storage"


@pytest.mark.parametrize(
    ("target", "kind", "path", "field"),
    [
        ("volcano", "Job", "spec.tasks[0].template.spec.containers[0].image", "roles.watch.image"),
        ("trainjob", "TrainingRuntime", "spec.template.spec.network.subdomain", "network.subdomain"),
        ("trainjob", "TrainingRuntime", f"spec.template.{POD}.dnsPolicy", "pod_template.dnsPolicy"),
    ],
)
def test_fields_of_pods_in_other_targets(target: str, kind: str, path: str, field: str) -> None:
    assert mapped(kind, path, target) == field


def test_a_field_that_pod_template_sets_is_mapped_to_pod_template() -> None:
    path = f"{POD}.priorityClassName"
    assert mapped("JobSet", path, pod_template={"priorityClassName": "x"}) == "pod_template.priorityClassName"
    whole = {"spec": {"priorityClassName": "x"}}
    assert mapped("JobSet", path, pod_template=whole) == "pod_template.spec.priorityClassName"


# Fields that belong to a pod in any case.
POD_FIELD = re.compile(r"template\.spec\.(?:containers\[|volumes\[|tolerations|dnsPolicy)")


def paths(value: Any, place: str = "") -> Iterator[str]:
    """Yields the path of every field of an object in the notation of API servers."""
    if place:
        yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{place}.{key}" if place else key)
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, f"{place}[{number}]")


@pytest.mark.parametrize(("name", "target"), list(pairs()), ids=lambda v: v)
def test_every_field_of_every_pod_is_mapped(name: str, target: str) -> None:
    job = load_job(EXAMPLES / f"{name}.yaml")
    mapper = FieldMapper(job, make_plan(job), "cli")
    for manifest in render_example(name, target):
        for path in paths(manifest):
            assert mapper.field(manifest, path) is not None or not POD_FIELD.search(path), path
