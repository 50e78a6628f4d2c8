"""The environment and the command of a container are the same in every target, in a local run and in `explain`.

An example is one job of two nodes that Hypothesis generates, with 89 variables that refer to each other. Most jobs
have a `pod_template` that adds, overrides and removes variables, and may replace the command and the
arguments; it always replaces the image. docs/testing/differential.md states what is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as GenerationPhase
from hypothesis import strategies as st

from stepset.cli import main
from stepset.rendering import render
from stepset.run_status import Phase
from stepset.targets.kinds import TARGETS
from stepset.targets.pods.strategic_merge import merge
from tests.cli.conftest import STEPSET
from tests.cluster.containers import POD_NAME, PROGRAM, Started, run_all, started
from tests.cluster.runs import runs_in
from tests.cluster.testbed.handle import Cluster
from tests.targets.environments import changed_containers, many_variables, rotated
from tests.targets.making import Manifest, pod, request

EXAMPLES = int(os.environ.get("STEPSET_EXAMPLES", "24"))
_NUMBERS = range(EXAMPLES)
Job = dict[str, Any]
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


_NO_CHECK = {"kind": "torch", "launch": "command"}
"""The framework of a command that does not start the ranks of its node."""
_PYTHON, _IMAGE = "<python>", "<image>"
"""Replaced in a job by the interpreter and the image of the pods."""


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job of two nodes whose processes print their environments and command lines.

    Hypothesis draws the variants before the many variables. Drawn afterwards, most jobs would have the same variant.
    """
    command, every_variable = draw(st.sampled_from([None, False, False, True, True])), draw(st.integers(0, 3)) == 3
    variables = draw(many_variables())
    chosen = draw(rotated(list(variables)))
    job = _job(variables, chosen[:30])
    if command is None:
        return job
    changes = draw(changed_containers(variables, _CONFIG_MAP, every_variable=every_variable))
    container = {"name": "node", "image": _IMAGE, **changes}
    if command:
        container["command"] = [_PYTHON, "-ISc", PROGRAM, "$(NEW0)$$(NEW0)"]
    words = [f"$({name})" for name in (*chosen[:10], "NEW0", "NEW2")]
    container |= draw(st.sampled_from([{}, {"args": None}, {"args": []}, {"args": words}]))
    return {**job, "image": _OTHER_IMAGE, "pod_template": {"containers": [container]}}


def _job(variables: Mapping[str, str], chosen: Sequence[str] = ()) -> Job:
    return {
        "name": "run",
        "image": _IMAGE,
        "command": [_PYTHON, "-ISc", PROGRAM],
        "args": [f"$({name})$$({name})$" for name in (*chosen, "HOME", "UNSET", "PET_NODE_RANK", "POD_NAME")],
        "env": dict(variables),
        "num_nodes": 2,
        "procs_per_node": 1,
        "agent": False,
    }


@cache
def _generated() -> tuple[Job, ...]:
    """Returns the examples, the same in each session.

    Hypothesis generates one job at a time, because an example with all jobs of a pod would exceed its limit of choices.
    The containers of the jobs run together, after all jobs are generated. Therefore a failing job is not shrunk; the
    assertion prints it.
    """
    found: list[Job] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[GenerationPhase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(jobs())
    def collect(job: Job) -> None:
        found.append(job)

    collect()
    assert len(found) == EXAMPLES
    return tuple(found)


_EMPTY_HOME = -1
"""The number of a job whose variable HOME is empty: the runtime replaces it, but references do not see that."""


def _job_of(number: int, python: str, image: str) -> Job:
    job = _job({"HOME": ""}) if number == _EMPTY_HOME else _generated()[number]
    replaced: Job = _replaced(job, {_PYTHON: python, _IMAGE: image})
    return replaced


def _replaced(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, words) for each in value]
    return words.get(value, value) if isinstance(value, str) else value


def _without_template() -> list[int]:
    """Returns the numbers of the jobs without `pod_template`."""
    return [number for number, job in enumerate(_generated()) if "pod_template" not in job]


def _spec(cluster: Cluster, target: str, number: int) -> Manifest:
    """Returns the spec of a job's pods that run on this cluster."""
    objects = render(request(**_job_of(number, cluster.python, cluster.image), namespace="ml"), target)
    spec: Manifest = merge(pod(objects), cluster.pod_template())["spec"]
    return spec


Found = dict[tuple[str, int], Started]


def _in_trainjob(cluster: Cluster, directory: Path, number: int) -> Started:
    """Returns what the second pod of a TrainJob has, which Kubeflow Trainer completes."""
    job = _job_of(number, cluster.python, cluster.image)
    with cluster.namespace() as namespace, runs_in(cluster, namespace, directory, "trainjob") as runs:
        status, listener = runs.run(None, run=f"run-{number}", framework="torch", **job)
        assert status.phase is Phase.SUCCEEDED, status
        texts = [line.text for line in listener.lines if line.text.startswith("[{")]
    return next(found for found in map(started, texts) if found.env["STEPSET_NODE_RANK"] == "1")


@pytest.fixture(scope="module")
def in_pods(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """(target, number) -> what a container of the job's second pod got from the real kubelet."""
    numbers = (_EMPTY_HOME, *_NUMBERS)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _CONFIG_MAP}}
    found: Found = {}
    with cluster.namespace() as namespace:
        cluster.apply({**config_map, "data": {"k": _VALUE_OF_KEY}}, namespace)
        for target in TARGETS:
            if target != "trainjob":
                specs = [_spec(cluster, target, number) for number in numbers]
                each = run_all(cluster, namespace, target, {"annotations": _ANNOTATIONS}, specs)
                found |= {(target, number): seen for number, seen in zip(numbers, each, strict=True)}
    last = _without_template()[-1]
    found["trainjob", last] = _in_trainjob(cluster, tmp_path_factory.mktemp("trainjob"), last)
    return found


def _shown(env: Mapping[str, str], names: Sequence[str]) -> dict[str, str | None]:
    return {name: env.get(name) for name in names}


def _known(text: str) -> str:
    """Returns a text of `explain`, in which the placeholders for what differs between pods have their values."""
    sources = {
        "<pod index>": "1",
        "<attempt>": "0",
        "<pod>": POD_NAME,
        "<field metadata.name>": POD_NAME,
        f"<ConfigMap {_CONFIG_MAP}, key k>": _VALUE_OF_KEY,
    }
    for placeholder, value in sources.items():
        text = text.replace(placeholder, value)
    return text


def _names(job: Job) -> tuple[str, ...]:
    """The variables of a job and its `pod_template`, which a target must set or leave out."""
    rows = [row for each in job.get("pod_template", {}).get("containers", ()) for row in each["env"]]
    return (*{**job["env"], **dict.fromkeys(row["name"] for row in rows if "name" in row)}, *_OF_STEPSET)


@pytest.mark.parametrize("number", _NUMBERS)
def test_every_target_gives_the_same_environment(in_pods: Found, number: int) -> None:
    job = _generated()[number]
    expected, names = in_pods["jobset", number], _names(job)
    if "pod_template" not in job:
        assert None not in _shown(expected.env, names).values(), job
    for target in [target for target in TARGETS if (target, number) in in_pods]:
        there = in_pods[target, number]
        assert _shown(there.env, names) == _shown(expected.env, names), (target, job)
        assert there.words == expected.words, (target, job)
        assert not [name for name in there.env if name.startswith("stepset_")], (target, job)


def test_references_to_an_empty_home_are_empty_in_every_target(in_pods: Found) -> None:
    found = {tuple(each.words[3:5]) for (_, number), each in in_pods.items() if number == _EMPTY_HOME}
    assert found == {("$(HOME)$", "$(UNSET)$(UNSET)$")}


@pytest.mark.parametrize("place", range(1 + EXAMPLES // 50))  # each local run takes a second
def test_a_local_run_gives_the_same_environment(in_pods: Found, tmp_path: Path, place: int) -> None:
    number = _without_template()[-1 - place]
    job = {**_job_of(number, sys.executable, "image:1"), "agent": "auto", "framework": _NO_CHECK}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    done = subprocess.run([STEPSET, "run", "job.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("[{")[2] for line in done.stdout.splitlines() if "[{" in line]
    found = [started(f"[{{{line}") for line in lines]
    there = next(each for each in found if each.env["STEPSET_NODE_RANK"] == "1")
    expected = in_pods["jobset", number]
    assert _shown(there.env, _names(job)) == _shown(expected.env, _names(job)), job
    assert there.words[-len(job["args"]) :] == expected.words[-len(job["args"]) :], job


@pytest.mark.parametrize("number", (_EMPTY_HOME, *_NUMBERS))
def test_explain_shows_what_the_container_gets(
    in_pods: Found, cluster: Cluster, capfd: pytest.CaptureFixture[str], tmp_path: Path, number: int
) -> None:
    there = in_pods["jobset", number]
    job = _job_of(number, cluster.python, cluster.image)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    assert main(["explain", str(tmp_path / "job.yaml"), "-o", "json"]) == 0
    group = json.loads(capfd.readouterr().out)["groups"][0]
    env = {row["variable"]: _known(row["value"]) for row in group["env"]}
    assert there.words == [_known(word) for word in group["command"]], job
    assert there.image == group["image"], job
    names = [name for name, value in env.items() if name != "HOME" or value]
    assert _shown(there.env, names) == _shown(env, names), job
    others = {name for name in there.env.keys() - env.keys() if not name.startswith("KUBERNETES_")}
    assert others <= {*_OF_RUNTIME, _OF_PYTHON}, job
