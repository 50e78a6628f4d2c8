"""The environment and the arguments of a command are the same in the pods of every target, and in a local run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import settings

from stepset.plan.expand import expand
from stepset.run_status import Phase
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.render import TARGETS, render
from tests.cli.conftest import STEPSET
from tests.cluster.runs import runs_in
from tests.cluster.testbed.handle import Cluster
from tests.targets.environments import many_variables
from tests.targets.making import Manifest, pod, request

_PROGRAM = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
_OF_STEPSET = ("STEPSET_NODE_RANK", "STEPSET_NUM_NODES", "STEPSET_ATTEMPT", "PET_NODE_RANK", "PET_NNODES")
# The annotations by which controllers tell a pod its index and the number of restarts.
_ANNOTATIONS = {
    "batch.kubernetes.io/job-completion-index": "1",
    "jobset.sigs.k8s.io/restart-attempt": "0",
    "volcano.sh/task-index": "1",
    "volcano.sh/job-retry-count": "0",
}
_SEEDS = range(1, 1 + max(1, settings().max_examples // 100))
"""Each seed gives about 90 variables."""
_EMPTY_HOME = 0
"""The seed of a job whose variable HOME is empty: the container runtime replaces it, but references do not see that."""


def _job(python: str, seed: int) -> dict[str, Any]:
    variables = many_variables(seed)
    chosen = Random(seed).sample(sorted(variables), 30)
    return {
        "name": "run",
        "command": [python, "-ISc", _PROGRAM],
        "args": [f"$({name})$$({name})$" for name in (*chosen, "UNSET", "PET_NODE_RANK", "POD_NAME")],
        "env": variables,
        "num_nodes": 2,
        "procs_per_node": 1,
        "agent": False,
    }


def _pod(cluster: Cluster, target: str, seed: int) -> Manifest:
    """Returns the second pod of a job, as the target's controller would create it."""
    job = _job(cluster.python, seed)
    if seed == _EMPTY_HOME:
        job |= {"env": {"HOME": ""}, "args": ["$(HOME)"]}
    objects = render(request(**job, image=cluster.image, namespace="ml"), target)
    template = merge(pod(objects), cluster.pod_template())
    spec = {**template["spec"], "restartPolicy": "Never"}
    for container in spec["containers"]:
        container.pop("readinessProbe", None)
    metadata = {"name": f"{target}-{seed}-1", "annotations": _ANNOTATIONS, "labels": {"app": "environments"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


Found = dict[tuple[str, int], tuple[dict[str, str], list[str]]]


def _in_trainjob(cluster: Cluster, directory: Path, seed: int) -> tuple[dict[str, str], list[str]]:
    """Returns what the second pod of a TrainJob has, which Kubeflow Trainer completes."""
    job = _job(cluster.python, seed)
    directory.mkdir()
    with cluster.namespace() as namespace, runs_in(cluster, namespace, directory, "trainjob") as runs:
        status, listener = runs.run(None, run=f"run-{seed}", framework="torch", **job)
        assert status.phase is Phase.SUCCEEDED, status
        texts = [line.text for line in listener.lines if line.text.startswith("[{")]
    return next(found for found in map(_read, texts) if found[0]["STEPSET_NODE_RANK"] == "1")


def _read(text: str) -> tuple[dict[str, str], list[str]]:
    env, args = json.loads(text)
    return env, args


@pytest.fixture(scope="module")
def in_pods(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """(target, seed) -> the environment and the arguments that a command had in a pod, set by the real kubelet."""
    seeds = (_EMPTY_HOME, *_SEEDS)
    pods = {(target, seed): _pod(cluster, target, seed) for target in TARGETS if target != "trainjob" for seed in seeds}
    with cluster.namespace() as namespace:
        for each in pods.values():
            cluster.apply(each, namespace)

        def ended() -> bool:
            phases = [each["status"]["phase"] for each in cluster.get("pods", namespace, "app=environments")["items"]]
            assert "Failed" not in phases, [cluster.logs(each["metadata"]["name"], namespace) for each in pods.values()]
            return phases.count("Succeeded") == len(pods)

        cluster.wait("the end of the pods", ended)
        found = {key: _read(cluster.logs(each["metadata"]["name"], namespace)) for key, each in pods.items()}
    directory = tmp_path_factory.mktemp("trainjobs")
    return {**found, **{("trainjob", s): _in_trainjob(cluster, directory / str(s), s) for s in _SEEDS}}


def _shown(env: Mapping[str, str], names: tuple[str, ...] | list[str]) -> dict[str, str | None]:
    return {name: env.get(name) for name in names}


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_target_gives_the_same_environment(in_pods: Found, seed: int) -> None:
    names = [*many_variables(seed), *_OF_STEPSET]
    env, args = in_pods["jobset", seed]
    assert None not in _shown(env, names).values()
    for target in TARGETS:
        there, words = in_pods[target, seed]
        assert _shown(there, names) == _shown(env, names), target
        assert words == args, target
        assert not [name for name in there if name.startswith("stepset_")]


def test_references_to_an_empty_home_are_empty_in_every_target(in_pods: Found) -> None:
    assert {args[0] for (_, seed), (_, args) in in_pods.items() if seed == _EMPTY_HOME} == {""}


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_local_run_gives_the_same_environment(in_pods: Found, tmp_path: Path, seed: int) -> None:
    job = {**_job(sys.executable, seed), "agent": "auto"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    done = subprocess.run([STEPSET, "run", "job.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("[{")[2] for line in done.stdout.splitlines() if "[{" in line]
    found = [tuple(json.loads(f"[{{{line}")) for line in lines]
    env, args = next((env, args) for env, args in found if env["STEPSET_NODE_RANK"] == "1")
    names = [*many_variables(seed), *_OF_STEPSET]
    assert _shown(env, names) == _shown(in_pods["jobset", seed][0], names)
    assert args == in_pods["jobset", seed][1]


@pytest.mark.parametrize("seed", _SEEDS)
def test_explain_shows_the_environment_before_references_are_replaced(
    in_pods: Found, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(_job(cluster.python, seed), sort_keys=False), encoding="utf-8")
    words = [STEPSET, "explain", "job.yaml", "-o", "json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    rows = json.loads(done.stdout)["groups"][0]["env"]
    env: dict[str, str] = {}
    for row in rows:
        value = {"<pod index>": "1", "<attempt>": "0"}.get(row["value"], row["value"])
        env[row["variable"]] = expand(value, env)
    names = [*many_variables(seed), *_OF_STEPSET]
    assert _shown(env, names) == _shown(in_pods["jobset", seed][0], names)
