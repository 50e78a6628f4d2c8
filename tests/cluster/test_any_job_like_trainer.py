"""For any job, the JobSet that Trainer's controller creates for a TrainJob is that of the jobset target.

Every generated job that both targets accept is created as a suspended TrainJob; no pod runs. Each field that differs
must be one of the known differences (`trainer_jobsets`), and each known difference must occur.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from stepset.errors import BadInputError
from stepset.rendering import render
from stepset.targets.request import RenderRequest
from tests.cluster.api import Api, Manifest
from tests.cluster.generated_jobs import request_of, unusual_job_files
from tests.cluster.testbed.handle import Cluster
from tests.cluster.trainer_jobsets import DIFFERENCES, JOBSET, differences, start, suspended
from tests.strategies import JobFile
from tests.targets.making import of_kind
from tests.waiting import until

pytestmark = pytest.mark.cluster

DRAWS = int(os.environ.get("STEPSET_EXAMPLES", "60"))
"""The draws are the same in each run; both targets accept about half of them."""
# A failing example is not shrunk: each attempt may wait a minute for a JobSet that never comes.
WHOLE = settings(max_examples=DRAWS, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
_TRAINER = "trainer.kubeflow.org/v1alpha1"
_TABLE = Path(__file__).parents[2] / "docs" / "design" / "README.md"


def _node(**fields: Any) -> JobFile:
    return {"containers": [{"name": "node", **fields}]}


# One job for each known difference, for the case that no generated job has it.
EXAMPLES: dict[str, JobFile] = {
    "names of ports": {"framework": "plain", "pod_template": _node(ports=[{"containerPort": 1}])},
    "`maxRestarts: 0`": {"framework": "plain"},
    "label of the ancestor step": {"framework": "mpi", "procs_per_node": 1, "command": ["a"]},
    "`ttlSecondsAfterFinished`": {"framework": "plain", "ttl": 60},
    "label of the queue": {"framework": "plain", "scheduling": {"queue_name": "team-a"}},
    "`containerName` of a `resourceFieldRef`": {
        "framework": "plain",
        "resources_per_node": {"cpu": 1},
        "pod_template": _node(env=[{"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]),
    },
}


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[Api]:
    api = Api(cluster, namespace)
    yield api
    api.close()


def test_each_field_that_differs_is_a_known_difference(api: Api) -> None:
    tried: Counter[str] = Counter()

    @WHOLE
    @given(unusual_job_files())
    def each(file: JobFile) -> None:
        tried["draws"] += 1
        request = request_of(file, api.namespace, f"run{tried['draws']}")
        pair = None if request is None else _jobsets(api, request)
        if pair is not None:
            tried["compared"] += 1
            assert [found for found in differences(*pair) if found.known is None] == []

    each()
    print(dict(tried))
    assert tried["compared"] >= 0.25 * DRAWS


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_known_difference_still_exists(api: Api, name: str) -> None:
    request = request_of({"command": ["train"], **EXAMPLES[name]}, api.namespace, "run")
    assert request is not None
    pair = _jobsets(api, request)
    assert pair is not None
    assert name in {found.known for found in differences(*pair)}


def test_each_known_difference_is_documented() -> None:
    assert [each.name for each in DIFFERENCES] == list(EXAMPLES)
    rows = [line.split("|")[1].strip() for line in _TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert EXAMPLES.keys() <= set(rows)


def _jobsets(api: Api, request: RenderRequest) -> tuple[Manifest, Manifest] | None:
    """Returns the JobSets of the jobset target and of Trainer's controller; None if stepset refuses the job."""
    try:
        ours, theirs = render(request, "jobset")[-1], render(request, "trainjob")
    except BadInputError:
        return None
    completed = api.completed(suspended(ours))  # before the controller creates a JobSet of this name
    runtime = of_kind(theirs, "TrainingRuntime")
    assert api.refused(runtime, dry_run=False) is None
    start(api, theirs[-1])
    try:
        made = _made(api, request.run)
    finally:
        api.delete(_TRAINER, "TrainJob", request.run)
        api.delete(_TRAINER, "TrainingRuntime", request.run)
    return completed, made


def _made(api: Api, run: str) -> Manifest:
    found: list[Any] = []

    def exists() -> bool:
        found[:] = [api.find(JOBSET, "JobSet", run)]
        return found[0] is not None

    assert until(exists, 60, 0.02), f"no JobSet of {run}; see the log of Trainer's controller"
    made: Manifest = found[0]
    return made
