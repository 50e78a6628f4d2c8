"""A working directory in pod_template, with a script that stepset ships."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config, container

ODD_JOB = OddJob(
    job={"num_nodes": 2, "pod_template": {"containers": [{"name": "node", "workingDir": "/data"}]}},
    expected="The ranks start in /data; before, the agent changed to the directory of the code.",
    source="kubernetes v1.36 k8s.io/api core/v1/types.go (Container.WorkingDir)",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_agent_stays_in_the_directory(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert container(objects)["workingDir"] == "/data"
    assert "work_dir" not in agent_config(objects)
    assert agent_config(ODD_JOB.render(target, pod_template={}))["work_dir"] == "/stepset/code"
