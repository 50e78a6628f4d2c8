"""A shared memory that is larger than the pod's memory, as a volume in pod_template."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.targets.notes import cluster_notes
from tests.odd_jobs import OddJob
from tests.targets.making import pod, request


def template(name: str, path: str = "/dev/shm", **volume: Any) -> dict[str, Any]:
    """Returns a pod template with a volume of memory that the nodes mount at `path`."""
    return {
        "containers": [{"name": "node", "volumeMounts": [{"name": name, "mountPath": path}]}],
        "volumes": [{"name": name, "emptyDir": volume}],
    }


ODD_JOB = OddJob(
    job={
        "resources_per_node": {"memory": "4Gi"},
        "pod_template": {"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]},
    },
    expected="Kubernetes accepts the job. A note states that the size exceeds the memory.",
    source="kubernetes.io/docs/concepts/storage/volumes (emptyDir, medium Memory)",
)


def notes(**fields: Any) -> tuple[str, ...]:
    """Returns the notes about the odd job with other fields."""
    return cluster_notes(request(**{**ODD_JOB.job, **fields}).job)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "dshm"),
        ({"pod_template": template("own", medium="Memory", sizeLimit="64Gi")}, "own"),
        ({"pod_template": template("own", "/dev/shm/", medium="Memory", sizeLimit="64Gi")}, "own"),
    ],
)
def test_a_size_above_the_memory_is_a_note(fields: dict[str, Any], name: str) -> None:
    assert notes(**fields) == (
        f"pod_template.volumes.{name}.emptyDir.sizeLimit: 64Gi is more than the memory 4Gi, which includes /dev/shm",
    )


def test_a_size_that_is_not_a_quantity_is_refused() -> None:
    problem = r"^pod_template\.volumes\.own\.emptyDir\.sizeLimit: '64GB' is not a Kubernetes quantity"
    with pytest.raises(BadInputError, match=problem):
        ODD_JOB.render("jobset", pod_template=template("own", medium="Memory", sizeLimit="64GB"))


@pytest.mark.parametrize(
    ("name", "volume"),
    [
        ("dshm", {"sizeLimit": "4Gi"}),
        ("dshm", {"medium": "", "sizeLimit": "64Gi"}),
        ("own", {"sizeLimit": "64Gi"}),
        ("own", {"medium": "Memory"}),
    ],
)
def test_disk_and_a_volume_that_fits_have_no_note(name: str, volume: dict[str, Any]) -> None:
    assert ODD_JOB.render("jobset", pod_template=template(name, **volume))
    assert notes(pod_template=template(name, **volume)) == ()


def test_a_node_without_a_memory_limit_may_have_any_size() -> None:
    volumes = pod(ODD_JOB.render("jobset", resources_per_node={"cpu": 1}))["spec"]["volumes"]
    assert {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}} in volumes
    assert notes(resources_per_node={"cpu": 1}) == ()
