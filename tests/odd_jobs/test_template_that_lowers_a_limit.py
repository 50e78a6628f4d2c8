"""A pod template that lowers the limit of GPUs below the request of the job."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere


def template(**limits: Any) -> dict[str, Any]:
    """Returns a pod template that sets limits of the nodes."""
    return {"containers": [{"name": "node", "resources": {"limits": limits}}]}


ODD_JOB = OddJob(
    job={
        "resources_per_node": {"gpus": 4},
        "procs_per_node": 4,
        "pod_template": template(**{"nvidia.com/gpu": 2}),
    },
    expected="The message names pod_template, and not resources_per_node, which is valid by itself.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, ValidateResourceRequirements",
    refused=everywhere(
        "pod_template.containers.node.resources: the request nvidia.com/gpu: 4 is more than the limit 2"
    ),
)


def test_a_whole_template_has_another_path() -> None:
    with pytest.raises(BadInputError, match=r"^pod_template\.spec\.containers\.node\.resources: the request cpu: 4 is"):
        ODD_JOB.render("jobset", resources_per_node={"cpu": 4}, pod_template={"spec": template(cpu=2)})


def test_a_problem_of_the_jobs_own_resources_is_reported_there() -> None:
    own = {"requests": {"cpu": 4}, "limits": {"cpu": 2}}
    with pytest.raises(BadInputError, match=r"^resources_per_node: the request cpu: 4 is more than the limit 2"):
        ODD_JOB.render("jobset", resources_per_node=own, pod_template=template(memory="1Gi"))


def test_the_resources_of_a_launcher_are_reported_at_their_field() -> None:
    launcher = {"requests": {"cpu": 4}, "limits": {"cpu": 2}}
    with pytest.raises(BadInputError, match=r"^framework\.launcher_resources: the request cpu: 4 is more than"):
        ODD_JOB.render(
            "jobset",
            framework={"kind": "mpi", "launcher_resources": launcher},
            resources_per_node={},
            pod_template={},
        )
