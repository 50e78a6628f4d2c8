"""A preStop hook that delays SIGTERM, so that peers can finish a step first."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config, container

HOOK = {"preStop": {"sleep": {"seconds": 30}}}
ODD_JOB = OddJob(
    job={"num_nodes": 2, "pod_template": {"containers": [{"name": "node", "lifecycle": HOOK}]}},
    expected="The agent stops the training code in the time that the hook leaves, before the kubelet kills the pod.",
    source="kubernetes v1.36 pkg/kubelet/kuberuntime/kuberuntime_container.go (killContainer)",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_hook_reduces_the_time_of_the_training_code(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert container(objects)["lifecycle"] == HOOK
    assert agent_config(objects)["grace"] == 20


def test_a_longer_period_extends_it() -> None:
    template = {**ODD_JOB.job["pod_template"], "terminationGracePeriodSeconds": 300}
    assert agent_config(ODD_JOB.render("jobset", pod_template=template))["grace"] == 260


@pytest.mark.parametrize("hook", [{"preStop": {"exec": {"command": ["true"]}}}, {"postStart": HOOK["preStop"]}])
def test_other_hooks_do_not(hook: dict[str, object]) -> None:
    template = {"containers": [{"name": "node", "lifecycle": hook}]}
    assert agent_config(ODD_JOB.render("jobset", pod_template=template))["grace"] == 50
