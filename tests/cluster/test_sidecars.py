"""The `pod_template` of docs/targets.md, whose exporter never ends by itself: the run ends with its ranks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset.run_status import Phase
from stepset.targets.pods.strategic_merge import merge
from tests.cluster.many import MEET, PAIR, RESULT, many
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.test_frameworks import SYSTEM_PATH
from tests.cluster.testbed.handle import Cluster
from tests.frameworks.cases.mpi import AS_ROOT, OPENMPI

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "targets.md"
EXPORTER = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
pathlib.Path('/cache/exporter').touch()
time.sleep(3600)
"""
"""Ends with an error when the kubelet stops it, as programs do that do not handle SIGTERM."""
WAIT = "\nwhile not pathlib.Path('/cache/exporter').exists():\n    time.sleep(0.1)\n"
"""The exporter runs beside each rank: both share the volume of the example."""
PREPARE = "import pathlib, time\n" + WAIT
RUNS = ("jobset", "mpi", "trainjob", "job", "statefulset")
HAS_MPI = all(shutil.which(name) for name in OPENMPI)


def example(cluster: Cluster) -> dict[str, Any]:
    """The example of the page, with an exporter that this cluster can run."""
    blocks = re.findall(r"```yaml\n(pod_template:\n.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [template for block in blocks if "exporter" in str(template := yaml.safe_load(block)["pod_template"])]
    mounts = cluster.pod_template("exporter")["spec"]["containers"]
    own = {"image": cluster.image, "command": [cluster.python, "-c", EXPORTER]}
    shared = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    spec = merge(merge(found, {"containers": mounts}), {"containers": [{"name": "exporter", **own}]})
    return merge(spec, {"containers": [{"name": "exporter", **shared}]})


@pytest.fixture(scope="module")
def ends(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RecordingListener]]:
    """Run -> its listener, at its end. All runs are at the same time."""
    text = MEET + WAIT + RESULT.format("{'rank': rank}")
    job = {**PAIR, "text": text, "pod_template": example(cluster)}
    role = {"name": "prepare", "before": True, "command": [cluster.python, "-c", PREPARE]}
    jobs: dict[str, dict[str, Any]] = {"jobset": {**job, "roles": [role]}}
    if cluster.choice and HAS_MPI:
        path = f"{Path(cluster.python).parent}:{SYSTEM_PATH}"
        launched = "import json, os, pathlib, time\n" + WAIT + RESULT.format("{'rank': 0}")
        jobs["mpi"] = {**job, "framework": "mpi", "text": launched, "env": {**AS_ROOT, "PATH": path}}
    with (
        many(cluster, tmp_path_factory.mktemp("jobset"), jobs) as jobsets,
        many(cluster, tmp_path_factory.mktemp("trainjob"), {"trainjob": job}, target="trainjob") as trainjob,
        many(cluster, tmp_path_factory.mktemp("job"), {"job": job}, target="job") as one_job,
        many(cluster, tmp_path_factory.mktemp("stateful"), {"statefulset": job}, target="statefulset") as statefulset,
    ):
        found = {}
        for each in (jobsets, trainjob, one_job, statefulset):
            for name in each.started:
                each.end(name)
                found[name] = each.listener(name)
        yield found


@pytest.mark.parametrize("run", RUNS)
def test_the_run_ends_with_its_ranks(ends: dict[str, RecordingListener], run: str) -> None:
    if run not in ends:
        pytest.skip("needs MPI and an SSH server in the pods; only the cluster of `make cluster` is known to have them")
    final = ends[run].statuses[-1]
    assert final.phase is Phase.SUCCEEDED, final.failure
    assert final.result == {"rank": 0}
    ranks = [row for row in final.ranks if row.rank is not None]
    assert [(row.state, row.exit_code) for row in ranks] == [("Succeeded", 0)] * 2


UPLOADER = """
import pathlib, sys, time
while not pathlib.Path('/results/done').exists():
    time.sleep(0.1)
time.sleep(2)  # works after the rank has ended
pathlib.Path('/results/uploaded').touch()
sys.exit(CODE)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_pod_waits_for_a_container_with_restart_policy_never_and_fails_with_it(runs: Runs, code: int) -> None:
    cluster = runs.cluster
    (mounts,) = cluster.pod_template("uploader")["spec"]["containers"]
    shared = {"volumeMounts": [{"name": "results", "mountPath": "/results"}]}
    program = {"command": [cluster.python, "-c", UPLOADER.replace("CODE", str(code))]}
    uploader = {**mounts, "image": cluster.image, "restartPolicy": "Never", **program}
    uploader["volumeMounts"] = [*mounts.get("volumeMounts", []), *shared["volumeMounts"]]
    node = {"name": "node", **shared}
    template = {"containers": [node, uploader], "volumes": [{"name": "results", "emptyDir": {}}]}
    status, _ = runs.run("import pathlib; pathlib.Path('/results/done').touch()", pod_template=template)
    (pod,) = runs.pods()
    ends = {row["name"]: row["state"]["terminated"] for row in pod["status"]["containerStatuses"]}
    assert {name: end["exitCode"] for name, end in ends.items()} == {"node": 0, "uploader": code}
    assert ends["uploader"]["finishedAt"] > ends["node"]["finishedAt"]
    if code:
        assert status.failure is not None
        assert "its container uploader exited with code 3" in status.failure.message
        assert any("container uploader ended with exit code 3" in note for note in status.notes)
    else:
        assert status.phase is Phase.SUCCEEDED, status.failure
