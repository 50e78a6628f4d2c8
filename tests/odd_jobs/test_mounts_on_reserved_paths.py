"""Volumes of pod_template at the paths, and with the names, of stepset's own."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import container

SCRATCH = {"name": "scratch", "emptyDir": {}}
ODD_JOB = OddJob(
    job={
        "pod_template": {
            "volumes": [SCRATCH],
            "containers": [{"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/stepset/agent/"}]}],
        }
    },
    expected="The job is refused; otherwise the volume would hide the agent.",
    source="docs/targets.md, Settings without a field (mounts are merged by path)",
    refused=everywhere("pod_template.containers.node.volumeMounts: /stepset/agent is reserved by stepset"),
)


def test_a_directory_in_the_code_is_not_reserved() -> None:
    mount = {"name": "scratch", "mountPath": "/stepset/code/data"}
    template = {"volumes": [SCRATCH], "containers": [{"name": "node", "volumeMounts": [mount]}]}
    assert mount in container(ODD_JOB.render("jobset", pod_template=template))["volumeMounts"]


def test_the_name_of_a_claims_volume_is_taken() -> None:
    template = {"volumes": [{"name": "storage-0", "emptyDir": {}}]}
    words = "pod_template.volumes.storage-0: stepset uses this name for the claim 'data'; give it another name"
    with pytest.raises(BadInputError, match=words):
        ODD_JOB.render("jobset", pod_template=template, storage=[{"path": "/data", "claim": "data"}])
