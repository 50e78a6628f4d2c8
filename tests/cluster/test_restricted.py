"""`security: restricted` in a namespace that enforces this PodSecurity level: jobs run to their end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.handle import KubernetesHandle
from stepset.run_status import FailureKind, Phase
from stepset.spec import parse_job
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.test_admission import trouble_of
from tests.cluster.test_frameworks import SYSTEM_PATH
from tests.frameworks.cases.mpi import QUIET, SSHD

pytestmark = pytest.mark.cluster

USER = {"runAsUser": 1000, "runAsGroup": 1000}
TORCH = """
    import json, os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    user = os.getuid()
    with open("/dev/shm/mark", "w") as file:
        file.write("shared memory is writable")
    dist.destroy_process_group()
    if os.environ["RANK"] == "0":
        with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
            json.dump({"sum": total.item(), "user": user}, file)
"""
MPI = """
    import json, os

    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
            json.dump({"size": int(os.environ["OMPI_COMM_WORLD_SIZE"]), "user": os.getuid()}, file)
    print("host", os.uname().nodename, flush=True)
"""


class Restricted:
    """Runs in a namespace that admits only restricted pods, where hostPath volumes are refused.

    The directories of this machine, which the pods of the test cluster need, are PersistentVolumes.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._volumes: dict[str, dict[str, Any]] = {}

    def template(self) -> dict[str, Any]:
        """The part of a pod template that makes a pod runnable on this cluster."""
        spec = self.runs.cluster.pod_template()["spec"]
        volumes = [
            {"name": each["name"], "persistentVolumeClaim": {"claimName": self._claim(each["name"], each["hostPath"])}}
            for each in spec.get("volumes", [])
        ]
        return {**spec, "volumes": volumes, "securityContext": USER} if volumes else spec

    def _claim(self, name: str, path: dict[str, Any]) -> str:
        if name not in self._volumes:
            volume = f"{self.runs.namespace}-{name}"
            common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
            spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": path}
            self._volumes[name] = {"kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec}
            self.runs.cluster.apply({"apiVersion": "v1", **self._volumes[name]})
            claim = {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
            manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim}
            self.runs.cluster.apply({"apiVersion": "v1", **manifest}, self.runs.namespace)
        return name

    def start(self, text: str, **fields: Any) -> tuple[KubernetesHandle, RecordingListener]:
        """Starts a run with a recording listener."""
        request = self.runs.request(text, **fields)
        job = parse_job({**request.job.to_dict(), "pod_template": {"spec": self.template()}})
        listener = RecordingListener()
        handle = self.runs.backend().start(replace(request, job=job), listener)
        listener.followed = lambda: not handle.ended(0)
        return handle, listener

    def close(self) -> None:
        for each in self._volumes.values():
            self.runs.cluster.kubectl("delete", "pv", each["metadata"]["name"], "--wait=false")


@pytest.fixture
def restricted(runs: Runs) -> Iterator[Restricted]:
    label = "pod-security.kubernetes.io/enforce=restricted"
    runs.cluster.kubectl("label", "namespace", runs.namespace, label)
    made = Restricted(runs)
    yield made
    made.close()


def path_of_programs(runs: Runs) -> dict[str, str]:
    return {"PATH": f"{Path(runs.cluster.python).parent}:{SYSTEM_PATH}"} if runs.cluster.choice else {}


@pytest.mark.parametrize("runs", ["jobset", "trainjob"], indirect=True)
def test_a_torch_job_of_two_nodes_runs_to_its_end(restricted: Restricted) -> None:
    handle, _ = restricted.start(
        TORCH,
        framework="torch",
        num_nodes=2,
        procs_per_node=1,
        security="restricted",
        env={**path_of_programs(restricted.runs), "OMP_NUM_THREADS": "1"},
        roles=[{"name": "prepare", "before": True, "command": ["true"]}],
    )
    status = handle.wait()
    assert (status.phase, status.failure) == (Phase.SUCCEEDED, None)
    assert status.result == {"sum": 3.0, "user": 1000}


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None or not Path(SSHD).exists(), reason="needs Open MPI and sshd")
def test_an_mpi_job_of_two_nodes_runs_to_its_end(restricted: Restricted) -> None:
    handle, listener = restricted.start(
        MPI,
        framework={"kind": "mpi", "ssh_auth_mount_path": "/home/trainer/.ssh"},
        num_nodes=2,
        procs_per_node=1,
        security="restricted",
        env={**path_of_programs(restricted.runs), **QUIET},
    )
    status = handle.wait()
    assert (status.phase, status.failure) == (Phase.SUCCEEDED, None)
    assert status.result == {"size": 2, "user": 1000}
    hosts = sorted(line.text.removeprefix("host ") for line in listener.lines if line.text.startswith("host "))
    assert hosts == ["run-node-0-0", "run-node-0-1"]


def test_without_the_field_the_pods_are_refused_and_the_message_names_it(restricted: Restricted) -> None:
    handle, listener = restricted.start(TORCH, framework="torch", num_nodes=2, procs_per_node=1)
    trouble = trouble_of(listener)
    handle.cancel()
    assert trouble.kind is FailureKind.REJECTED
    assert 'violates PodSecurity "restricted:latest"' in trouble.message
    assert trouble.message.endswith("; set `security: restricted` in the job")
