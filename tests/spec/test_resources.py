"""The resources of a pod: two forms, and the CPUs that they provide."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset.spec.resources import Resources, cpu_count


def resources(given: dict[str, Any]) -> Resources:
    return parse_job({"script": "a.py", "resources_per_node": given}).resources_per_node


def test_the_short_form_makes_requests_equal_to_limits() -> None:
    short = resources({"cpu": 4, "memory": "16Gi", "gpus": 2, "vendor.example/nic": 1, "shm": "8Gi"})
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2", "vendor.example/nic": "1"}
    assert short.requests == short.limits == amounts
    assert short.shm == "8Gi"


def test_requests_and_limits_can_differ() -> None:
    apart = resources({"requests": {"cpu": 2}, "limits": {"cpu": "4", "hugepages-2Mi": "1Gi"}})
    assert (apart.requests, apart.limits) == ({"cpu": "2"}, {"cpu": "4", "hugepages-2Mi": "1Gi"})
    assert resources({"requests": {"cpu": 2}}).limits == {}


def test_gpus_means_nvidia_gpus_in_each_form() -> None:
    assert resources({"requests": {"gpus": 2}, "limits": {"gpus": 2}}) == resources({"gpus": 2})


def test_the_error_about_huge_pages_names_the_form_that_accepts_them() -> None:
    with pytest.raises(BadInputError, match=r"hugepages-2Mi needs the form {requests: {...}, limits: {...}}"):
        resources({"hugepages-2Mi": "4Mi", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({}, {}),
        ({"shm": "1Gi"}, {"shm": "1Gi"}),
        ({"cpu": 1, "gpus": 2}, {"cpu": "1", "gpus": "2"}),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 1}, "shm": "5Gi"}, {"cpu": "1", "shm": "5Gi"}),
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": "1"}, "limits": {}}),
        (
            {"requests": {"hugepages-2Mi": 1}, "limits": {"hugepages-2Mi": 1}},
            {"requests": {"hugepages-2Mi": "1"}, "limits": {"hugepages-2Mi": "1"}},
        ),
    ],
)
def test_the_shortest_form_is_written(given: dict[str, Any], written: dict[str, Any]) -> None:
    job = parse_job({"script": "a.py", "resources_per_node": given})
    assert job.to_dict().get("resources_per_node", {}) == written
    assert resources(written) == job.resources_per_node


@pytest.mark.parametrize(
    ("given", "cpus"),
    [
        ({}, 1),
        ({"memory": "4Gi"}, 1),
        ({"cpu": "500m"}, 1),
        ({"cpu": 0}, 1),
        ({"cpu": "2500m"}, 3),
        ({"requests": {"cpu": 2}, "limits": {"cpu": 8}}, 2),
        ({"requests": {"cpu": "500m"}, "limits": {"cpu": 8}}, 1),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": 8}}, 8),
        ({"requests": {"cpu": 0}, "limits": {"cpu": 8}}, 8),
    ],
)
def test_cpus_are_rounded_up_to_at_least_1(given: dict[str, Any], cpus: int) -> None:
    assert cpu_count(resources(given)) == cpus


@pytest.mark.parametrize("pod_spec", [lambda containers: {"spec": containers}, lambda containers: containers])
def test_the_pod_templates_training_container_is_merged_over_by_name(pod_spec: Any) -> None:
    job = parse_job(
        {
            "script": "a.py",
            "resources_per_node": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"gpus": 4}, "shm": "1Gi"},
            "pod_template": pod_spec(
                {
                    "containers": [
                        {"name": "sidecar", "resources": {"limits": {"nvidia.com/gpu": 8}}},
                        {
                            "name": "node",
                            "resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "2Gi"}, "claims": []},
                        },
                    ]
                }
            ),
        }
    )
    merged = job.node_resources()
    assert merged.requests == {"cpu": "2", "memory": "2Gi"}
    assert merged.limits == {"nvidia.com/gpu": "4", "memory": "2Gi"}
    assert merged.shm == "1Gi"


@pytest.mark.parametrize(
    "pod_template",
    [{}, {"spec": {}}, {"spec": None}, {"spec": {"containers": None}}, {"containers": ["x", {"name": "node"}]}],
)
def test_a_pod_template_without_resources_changes_nothing(pod_template: dict[str, Any]) -> None:
    job = parse_job({"script": "a.py", "resources_per_node": {"cpu": 2}, "pod_template": pod_template})
    assert job.node_resources() == job.resources_per_node


@pytest.mark.parametrize(
    ("over", "requests", "limits"),
    [
        ({"limits": {"nvidia.com/gpu": None}}, {"cpu": "2", "nvidia.com/gpu": "1"}, {"cpu": "2"}),
        ({"limits": {"nvidia.com/gpu": None, "cpu": 3}}, {"cpu": "2", "nvidia.com/gpu": "1"}, {"cpu": "3"}),
        ({"limits": None}, {"cpu": "2", "nvidia.com/gpu": "1"}, {}),
        ({"requests": None, "limits": {"cpu": 1}}, {}, {"cpu": "1", "nvidia.com/gpu": "1"}),
        (None, {}, {}),
        ({"limits": {"absent": None}}, {"cpu": "2", "nvidia.com/gpu": "1"}, {"cpu": "2", "nvidia.com/gpu": "1"}),
    ],
)
def test_null_in_a_pod_template_removes_quantities(
    over: dict[str, Any] | None, requests: dict[str, str], limits: dict[str, str]
) -> None:
    job = parse_job(
        {
            "script": "a.py",
            "resources_per_node": {"cpu": 2, "gpus": 1},
            "pod_template": {"containers": [{"name": "node", "resources": over}]},
        }
    )
    merged = job.node_resources()
    assert (merged.requests, merged.limits) == (requests, limits)
