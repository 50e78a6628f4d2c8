"""The environment and the command of a container are the same in every target, in a local run and in `explain`.

An example is one generated job of two nodes with 89 variables that refer to each other. Half of the jobs have a
`pod_template` that adds, overrides and removes variables, and may replace the command and the arguments; it always
replaces the image. docs/testing/differential.md states what is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from stepset.cli import main
from stepset.plan.expand import expand
from stepset.run_status import Phase
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.render import TARGETS, render
from tests.cli.conftest import STEPSET
from tests.cluster.containers import POD_NAME, PROGRAM, Started, run_all, started
from tests.cluster.runs import runs_in
from tests.cluster.testbed.handle import Cluster
from tests.targets.environments import changed_container, many_variables
from tests.targets.making import Manifest, pod, request

EXAMPLES = int(os.environ.get("STEPSET_EXAMPLES", "4"))
_SEEDS = range(1, EXAMPLES + 1)
"""The jobs with even seeds have a `pod_template`."""
_EMPTY_HOME = 0
"""The seed of a job whose variable HOME is empty: the container runtime replaces it, but references do not see that."""
_LOCAL = range(1, 2 + EXAMPLES // 25, 2)
"""The seeds of local runs, which take a second each."""
_OTHER_IMAGE = "registry.example/not-used:1"
_CONFIG_MAP = "environments"
_VALUE_OF_KEY = "a $(NEW0) of a ConfigMap"
_OF_STEPSET = ("STEPSET_NODE_RANK", "STEPSET_NUM_NODES", "STEPSET_ATTEMPT", "PET_NODE_RANK", "PET_NNODES")
# The annotations by which controllers tell a pod its index and the number of restarts.
_ANNOTATIONS = {
    "batch.kubernetes.io/job-completion-index": "1",
    "jobset.sigs.k8s.io/restart-attempt": "0",
    "volcano.sh/task-index": "1",
    "volcano.sh/job-retry-count": "0",
}
_OF_RUNTIME = ("HOME", "HOSTNAME", "PATH")
"""Variables that every container has, unless its pod sets them; the kubelet adds those of the API server's Service."""
_OF_PYTHON = "LC_CTYPE"
"""Python sets it if the locale is C (PEP 538)."""


def _job(python: str, image: str, seed: int) -> dict[str, Any]:
    variables = {"HOME": ""} if seed == _EMPTY_HOME else many_variables(seed)
    chosen = [] if seed == _EMPTY_HOME else Random(seed).sample(sorted(variables), 30)
    job = {
        "name": "run",
        "image": image,
        "command": [python, "-ISc", PROGRAM],
        "args": [f"$({name})$$({name})$" for name in (*chosen, "HOME", "UNSET", "PET_NODE_RANK", "POD_NAME")],
        "env": variables,
        "num_nodes": 2,
        "procs_per_node": 1,
        "agent": False,
    }
    if seed % 2 or seed == _EMPTY_HOME:
        return job
    return {**job, "image": _OTHER_IMAGE, "pod_template": {"containers": [_changed(python, image, seed, variables)]}}


def _changed(python: str, image: str, seed: int, variables: Mapping[str, str]) -> dict[str, Any]:
    random = Random(seed)
    container = {"name": "node", "image": image, **changed_container(seed, variables, _CONFIG_MAP)}
    words = [f"$({name})" for name in (*random.sample(sorted(variables), 10), "NEW0", "NEW2")]
    if random.random() < 0.5:
        container["command"] = [python, "-ISc", PROGRAM, "$(NEW0)$$(NEW0)"]
    if random.random() < 0.6:
        container["args"] = random.choice([None, [], words])
    return container


def _spec(cluster: Cluster, target: str, seed: int) -> Manifest:
    """Returns the spec of a job's pods that run on this cluster."""
    objects = render(request(**_job(cluster.python, cluster.image, seed), namespace="ml"), target)
    spec: Manifest = merge(pod(objects), cluster.pod_template())["spec"]
    return spec


Found = dict[tuple[str, int], Started]


def _in_trainjob(cluster: Cluster, directory: Path, seed: int) -> Started:
    """Returns what the second pod of a TrainJob has, which Kubeflow Trainer completes."""
    job = _job(cluster.python, cluster.image, seed)
    with cluster.namespace() as namespace, runs_in(cluster, namespace, directory, "trainjob") as runs:
        status, listener = runs.run(None, run=f"run-{seed}", framework="torch", **job)
        assert status.phase is Phase.SUCCEEDED, status
        texts = [line.text for line in listener.lines if line.text.startswith("[{")]
    return next(found for found in map(started, texts) if found.env["STEPSET_NODE_RANK"] == "1")


@pytest.fixture(scope="module")
def in_pods(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """(target, seed) -> what a container of the job's second pod got from the real kubelet."""
    seeds = (_EMPTY_HOME, *_SEEDS)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _CONFIG_MAP}}
    found: Found = {}
    with cluster.namespace() as namespace:
        cluster.apply({**config_map, "data": {"k": _VALUE_OF_KEY}}, namespace)
        for target in TARGETS:
            if target != "trainjob":
                specs = [_spec(cluster, target, seed) for seed in seeds]
                each = run_all(cluster, namespace, target, {"annotations": _ANNOTATIONS}, specs)
                found |= {(target, seed): seen for seed, seen in zip(seeds, each, strict=True)}
    found["trainjob", 1] = _in_trainjob(cluster, tmp_path_factory.mktemp("trainjob"), 1)
    return found


def _shown(env: Mapping[str, str], names: Sequence[str]) -> dict[str, str | None]:
    return {name: env.get(name) for name in names}


@cache
def _names(seed: int) -> tuple[str, ...]:
    """The variables of a job and its `pod_template`, which a target must set or leave out."""
    job = _job("", "", seed)
    rows = [row for each in job.get("pod_template", {}).get("containers", ()) for row in each["env"]]
    return (*{**job["env"], **dict.fromkeys(row["name"] for row in rows if "name" in row)}, *_OF_STEPSET)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_target_gives_the_same_environment(in_pods: Found, seed: int) -> None:
    expected, names = in_pods["jobset", seed], _names(seed)
    if seed % 2:
        assert None not in _shown(expected.env, names).values()
    for target in [target for target in TARGETS if (target, seed) in in_pods]:
        there = in_pods[target, seed]
        assert _shown(there.env, names) == _shown(expected.env, names), target
        assert there.words == expected.words, target
        assert not [name for name in there.env if name.startswith("stepset_")]


def test_references_to_an_empty_home_are_empty_in_every_target(in_pods: Found) -> None:
    found = {tuple(each.words[3:5]) for (_, seed), each in in_pods.items() if seed == _EMPTY_HOME}
    assert found == {("$(HOME)$", "$(UNSET)$(UNSET)$")}


@pytest.mark.parametrize("seed", _LOCAL)
def test_a_local_run_gives_the_same_environment(in_pods: Found, tmp_path: Path, seed: int) -> None:
    job = {**_job(sys.executable, "image:1", seed), "agent": "auto"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    done = subprocess.run([STEPSET, "run", "job.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("[{")[2] for line in done.stdout.splitlines() if "[{" in line]
    found = [started(f"[{{{line}") for line in lines]
    there = next(each for each in found if each.env["STEPSET_NODE_RANK"] == "1")
    expected = in_pods["jobset", seed]
    assert _shown(there.env, _names(seed)) == _shown(expected.env, _names(seed))
    assert there.words[-len(job["args"]) :] == expected.words[-len(job["args"]) :]


@pytest.mark.parametrize("seed", (_EMPTY_HOME, *_SEEDS))
def test_explain_shows_what_the_container_gets_before_references_are_replaced(
    in_pods: Found, cluster: Cluster, capfd: pytest.CaptureFixture[str], tmp_path: Path, seed: int
) -> None:
    there = in_pods["jobset", seed]
    job = _job(cluster.python, cluster.image, seed)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    assert main(["explain", str(tmp_path / "job.yaml"), "-o", "json"]) == 0
    group = json.loads(capfd.readouterr().out)["groups"][0]
    sources = {
        "<pod index>": "1",
        "<attempt>": "0",
        "<field metadata.name>": POD_NAME,
        f"<ConfigMap {_CONFIG_MAP}, key k>": _VALUE_OF_KEY,
    }
    env: dict[str, str] = {}
    for row in group["env"]:
        value = row["value"]
        env[row["variable"]] = sources[value] if value in sources else expand(value, env)
    assert there.words == [expand(word, env) for word in group["command"]]
    assert there.image == group["image"]
    names = [name for name, value in env.items() if name != "HOME" or value]
    assert _shown(there.env, names) == _shown(env, names)
    others = {name for name in there.env.keys() - env.keys() if not name.startswith("KUBERNETES_")}
    assert others <= {*_OF_RUNTIME, _OF_PYTHON}
