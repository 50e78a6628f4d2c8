"""The JobSet that Trainer's controller creates for a TrainJob equals the one that the jobset target renders.

Both get every framework with every shape. The complete JobSets are compared, with the server's defaults, and the files
and keys that their pods mount. `trainer_jobsets` lists the fields that may differ, OVERRIDDEN the jobs for which
Trainer's own values would be wrong; each with the reason. The jobs are suspended, so no pod runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.rendering import render
from tests.cluster.api import Api, Manifest
from tests.cluster.testbed.handle import Cluster
from tests.cluster.trainer_jobsets import JOBSET, differences, start, suspended
from tests.targets.making import of_kind, request

pytestmark = pytest.mark.cluster

FRAMEWORKS: dict[str, Any] = {
    "torch": "torch",
    "worker": {"kind": "torch", "launcher": "none"},
    "elastic": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 4}},
    "torchtune": {"kind": "torchtune", "model": "llama3_3/70B"},
    "deepspeed": "deepspeed",
    "deepspeed-mpirun": {"kind": "deepspeed", "launcher": "mpirun"},
    "mpi": "mpi",
    "mpi-node": {"kind": "mpi", "run_launcher_as_node": True, "ssh_auth_mount_path": "/root/.ssh"},
    "mpich": {"kind": "mpi", "implementation": "mpich"},
    "mlx": "mlx",
    "mlx-mpi": {"kind": "mlx", "backend": "mpi"},
    "jax": "jax",
    "xgboost": "xgboost",
    "plain": "plain",
}
SHAPES: dict[str, dict[str, Any]] = {
    "alone": {},
    "many": {
        "num_nodes": 3,
        "procs_per_node": 2,
        "args": ["--lr", "$(LR)"],
        "env": {"LR": "0.1", "NODE": "$(STEPSET_JOB)", "TOKEN": {"secret": "hub", "key": "token"}},
    },
    "gpus": {"num_nodes": 2, "resources_per_node": {"cpu": 4, "memory": "8Gi", "gpus": 2}},
    "mig": {"num_nodes": 2, "resources_per_node": {"cpu": 4, "nvidia.com/mig-1g.5gb": 2}},
    "port": {"num_nodes": 2, "procs_per_node": 1, "network": {"port": 29600}},
    "subdomain": {
        "num_nodes": 2,
        "procs_per_node": 1,
        "network": {"subdomain": "peers"},
        "storage": [{"path": "/data", "claim": "d"}, {"path": "/ckpt", "claim": "d", "sub_path": "x"}],
    },
    "roles": {
        "num_nodes": 2,
        "procs_per_node": 1,
        "roles": [
            {"name": "prepare", "before": True, "command": ["fetch"]},
            {"name": "monitor", "command": ["watch"], "env": {"A": "1"}},
        ],
        "restart": {"max_restarts": 2, "user_errors": "fail"},
        "deadline": "1h",
    },
    "template": {
        "num_nodes": 2,
        "procs_per_node": 1,
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "scheduling": {"node_selector": {"pool": "train"}, "topology": {"exclusive": "rack"}},
        "pod_template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "node", "ports": [{"containerPort": 8080}], "env": [{"name": "X", "value": "1"}]},
                    {"name": "exporter", "image": "x", "ports": [{"containerPort": 1}, {"containerPort": 2}]},
                ]
            },
        },
    },
    "no agent": {"num_nodes": 2, "procs_per_node": 1, "agent": False},
}
# The first needs the agent. The second needs a domain of machines for two Jobs.
REFUSED = {("elastic", "no agent"), ("mpi-node", "template")}

# Framework -> why stepset does not request Trainer's policy for it. For the others it does, except for OVERRIDDEN.
WITHOUT_POLICY = {
    "worker": "Trainer supports torchrun's variables only",
    "elastic": "Trainer does not support elastic worlds",
    "torchtune": "stepset chooses the recipe; Trainer would choose it by the runtime's name",
    "mpich": "Trainer starts Open MPI only",
    "mlx": "Trainer does not support the ring backend",
    "plain": "Trainer has nothing to add",
}
_SUBDOMAIN = "the first node's address contains the Service's name; in the controller's it is the run's"
_PORT = "the port is the job's; the controller's is 29500"
_GPU = "the number of workers is not nodes times GPUs"
OVERRIDDEN: dict[tuple[str, str], str] = {
    **{(framework, "subdomain"): _SUBDOMAIN for framework in ("torch", "deepspeed", "jax", "xgboost")},
    **{(framework, "port"): _PORT for framework in ("torch", "deepspeed", "jax", "xgboost")},
    ("xgboost", "many"): _GPU,
    ("xgboost", "mig"): _GPU,
    ("mpi-node", "alone"): "the launcher is the only node; the controller would list one that does not exist",
}


def _job(framework: str, shape: str) -> dict[str, Any]:
    # torchtune's recipe is the program.
    entry = {"script": None} if framework == "torchtune" else {}
    return {"name": "digits", "framework": FRAMEWORKS[framework], "agent": True, **SHAPES[shape], **entry}


PAIRS = [(framework, shape) for framework in FRAMEWORKS for shape in SHAPES]
# Run -> job.
RUNS = {f"{f}-{s}".replace(" ", "-"): _job(f, s) for f, s in PAIRS if (f, s) not in REFUSED}

_FILES = (("v1", "ConfigMap"), ("v1", "Secret"))


@dataclass(frozen=True)
class Pair:
    """The JobSets of one job.

    Args:
        ours: the JobSet of the jobset target, with the server's defaults.
        theirs: the JobSet that Trainer's controller created.
        our_files: name -> ConfigMap or Secret of the jobset target.
        their_files: name -> ConfigMap or Secret of the trainjob target, and those that the controller created.
        policy: the kind of the requested `mlPolicy`; None without one.
    """

    ours: Manifest
    theirs: Manifest
    our_files: Mapping[str, Manifest]
    their_files: Mapping[str, Manifest]
    policy: str | None


@pytest.fixture(scope="module")
def pairs(cluster: Cluster) -> Iterator[dict[str, Pair]]:
    """The JobSets of every job: run -> pair."""
    with cluster.namespace() as namespace:
        api = Api(cluster, namespace)
        ours = {run: _render(run, "jobset", namespace) for run in RUNS}
        completed = {run: api.completed(suspended(objects[-1])) for run, objects in ours.items()}
        trainjobs = {run: _render(run, "trainjob", namespace) for run in RUNS}
        for objects in trainjobs.values():
            for each in objects[:-1]:
                assert api.refused(each, dry_run=False) is None
        for objects in trainjobs.values():
            start(api, objects[-1])
        jobsets = _wait_for_jobsets(api)
        made = {each["metadata"]["name"]: each for version, kind in _FILES for each in api.items(version, kind)}
        yield {
            run: Pair(
                completed[run],
                jobsets[run],
                {each["metadata"]["name"]: each for each in ours[run] if (each["apiVersion"], each["kind"]) in _FILES},
                {name: each for name, each in made.items() if name.startswith(f"{run}-")},
                next(iter(of_kind(trainjobs[run], "TrainingRuntime")["spec"].get("mlPolicy", ())), None),
            )
            for run in RUNS
        }
        api.close()


def _render(run: str, target: str, namespace: str) -> list[Manifest]:
    return render(request(run=run, namespace=namespace, **RUNS[run]), target)


def _wait_for_jobsets(api: Api) -> dict[str, Manifest]:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = {each["metadata"]["name"]: each for each in api.items(JOBSET, "JobSet")}
        if found.keys() == RUNS.keys():
            return found
        time.sleep(0.5)
    raise AssertionError(f"no JobSet of {sorted(RUNS.keys() - found.keys())}; see the log of Trainer's controller")


@pytest.mark.parametrize("run", RUNS)
def test_the_jobset_equals_the_jobset_targets(pairs: dict[str, Pair], run: str) -> None:
    pair = pairs[run]
    assert [each for each in differences(pair.ours, pair.theirs) if each.known is None] == []


@pytest.mark.parametrize("run", RUNS)
def test_files_and_keys_equal_the_jobset_targets(pairs: dict[str, Pair], run: str) -> None:
    pair = pairs[run]
    assert pair.our_files.keys() <= pair.their_files.keys()
    for name, ours in pair.our_files.items():
        theirs = pair.their_files[name]
        assert (theirs["kind"], theirs.get("type")) == (ours["kind"], ours.get("type"))
        if ours["kind"] == "Secret":
            assert theirs["data"].keys() == ours["stringData"].keys()
        else:
            assert theirs.get("data") == ours.get("data")
            assert theirs.get("binaryData") == ours.get("binaryData")


@pytest.mark.parametrize(("framework", "shape"), [pair for pair in PAIRS if pair not in REFUSED])
def test_requests_trainers_policy_unless_its_values_would_be_wrong(
    pairs: dict[str, Pair], framework: str, shape: str
) -> None:
    policy = pairs[f"{framework}-{shape}".replace(" ", "-")].policy
    assert (policy is None) == (framework in WITHOUT_POLICY or (framework, shape) in OVERRIDDEN)


@pytest.mark.parametrize(("framework", "shape"), sorted(REFUSED))
def test_refuses_the_pairs_that_are_not_compared(framework: str, shape: str) -> None:
    with pytest.raises(BadInputError):
        render(request(namespace="ml", **_job(framework, shape)), "trainjob")


def test_requests_every_policy_of_trainer(pairs: dict[str, Pair]) -> None:
    assert {pair.policy for pair in pairs.values()} == {"torch", "mpi", "jax", "xgboost", None}
    assert len(pairs) >= 40
