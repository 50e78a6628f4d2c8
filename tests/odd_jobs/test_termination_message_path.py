"""A file for the termination message other than the default one."""

from __future__ import annotations

import pytest

from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import container

PATH = {"terminationMessagePath": "/tmp/message"}
ODD_JOB = OddJob(
    job={"pod_template": {"containers": [{"name": "node", **PATH}]}},
    expected="The job is refused: the kubelet would not read the agent's verdict, and the result would be lost.",
    source="kubernetes v1.36 k8s.io/api core/v1/types.go (Container.TerminationMessagePath); docs/design/agent.md",
    refused=everywhere("pod_template.containers.node.terminationMessagePath: stepset's agent writes the result"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_without_the_agent_it_is_kept(target: str) -> None:
    objects = ODD_JOB.render(target, framework="plain", agent=False)
    assert container(objects)["terminationMessagePath"] == PATH["terminationMessagePath"]
