"""Compares ways of waiting for 1,000 runs in one event loop.

stepset's trigger watches each run. The other ways poll each run every ten seconds. The runs are JobSets of two pods on
kwok's fake nodes. Three processes wait for the same runs at the same time, each in its own way. The benchmark measures
the CPU time, the memory and the requests of each process. It does not measure the API server.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.testbed import scale
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.manifests import bundle

from benchmarks.on_cluster import with_cluster
from benchmarks.paired import Row, paired
from stepset.api import render

COUNT = 1000
IDLE = 60.0
"""The number of seconds of the measurement in which all processes wait and no run changes."""
RUN_FOR = 900
"""The number of seconds for which each pod runs.

In this time, all runs must be created and the waiting must be measured. The creation takes minutes on two cores."""

SCRIPTS = Path(__file__).parent / "scripts"
BIN = Path(sys.executable).parent
WAYS = ("ours", "trigger", "client")
TRIGGER = f"waiting for {COUNT:,} runs, one trigger for each run: against triggers of KubernetesJobOperator"
CLIENT = f"waiting for {COUNT:,} runs, one trigger for each run: against polls of the JobSets with one client"
ENDS = f"{COUNT:,} runs end: cost and delay of the notifications"
LIST = f"`stepset list` of {COUNT:,} runs, against `kubectl get jobsets,pods`"
BUDGET = "<= 1/20 of the trigger's CPU"


@dataclass(frozen=True)
class Cost:
    """The resources that a process has used in a period.

    Args:
        cpu: the CPU seconds.
        requests: the number of requests to the API server.
        mib: the peak memory of the process in MiB, from the start of the process to the end of the period.
        seconds: the length of the period in seconds.
    """

    cpu: float
    requests: int
    mib: float
    seconds: float

    def a_minute(self) -> str:
        """Returns the resources per minute as text."""
        cpu, requests = (figure * 60 / self.seconds for figure in (self.cpu, self.requests))
        return f"{cpu:.2f} s CPU and {requests:,.0f} requests a minute, {self.mib:.0f} MiB at most"


@dataclass(frozen=True)
class Recording:
    """The samples that a waiting process has written (scripts/samples.py).

    Args:
        samples: the rows of samples. Each row contains `at`, `cpu`, `mib` and `requests`.
        ends: a mapping from each run to the time at which the process detected that the run had finished.
    """

    samples: list[dict[str, float]]
    ends: dict[str, float]

    def cost(self, since: float, until: float) -> Cost:
        """Returns the resources that the process has used between two times."""
        inside = [each for each in self.samples if since <= each["at"] <= until]
        first, last = inside[0], inside[-1]
        return Cost(
            last["cpu"] - first["cpu"],
            int(last["requests"] - first["requests"]),
            last["mib"],
            last["at"] - first["at"],
        )


def rows(count: int = COUNT) -> Iterator[Row]:
    """Yields four rows, each as soon as it is measured. The last row is measured when all runs have finished."""
    what = ((TRIGGER, BUDGET), (CLIENT, ""), (LIST, ""), (ENDS, ""))
    return with_cluster(lambda cluster: _measured(cluster, count), *what)


def _measured(cluster: Cluster, count: int) -> Iterator[Row]:
    assert cluster.choice is not None
    with ExitStack() as stack:
        stack.enter_context(scale.nodes(cluster.choice, 4))
        namespace = stack.enter_context(_runs(cluster, count))
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        outs = {way: Path(directory, way) for way in WAYS}
        Path(f"{outs['ours']}.runs").write_text(json.dumps(_references(cluster, namespace)))
        waiting = [_Waiting(way, [cluster.kubeconfig, namespace, count, outs[way]]) for way in WAYS]
        for each in waiting:
            stack.callback(each.stop)
        _until(lambda: all(_requests(out) >= (count if out.name != "ours" else 5) for out in outs.values()), waiting)
        idle = time.time()
        time.sleep(IDLE)
        busy = time.time()
        yield from _waits({way: _recording(out) for way, out in outs.items()}, idle, busy)
        yield _listed(cluster, namespace)
        for each in waiting:
            each.finish()
        finished = _finished(cluster, namespace)
        yield _ends({way: _recording(out) for way, out in outs.items()}, busy, finished)


class _Waiting:
    """A process that waits for all runs in one way.

    Args:
        way: the first argument of scripts/wait.py, which selects how the process waits.
        arguments: the other arguments of scripts/wait.py.
    """

    def __init__(self, way: str, arguments: list[object]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        command = [sys.executable, str(SCRIPTS / "wait.py"), way, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._errors)

    @property
    def failed(self) -> bool:
        """Returns whether the process has exited with an error."""
        return bool(self._process.poll())

    def stop(self) -> None:
        """Kills the process if it has not exited."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Waits until the process has recorded that all runs have finished."""
        code = self._process.wait(RUN_FOR + 900)
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        if code:
            raise RuntimeError(f"{self._process.args!r} ended with {code}\n{errors[-2000:]}")


@contextmanager
def _runs(cluster: Cluster, count: int) -> Iterator[str]:
    """A context manager that creates a namespace with active runs, and deletes the namespace afterwards."""
    with cluster.namespace("bench") as namespace:
        names = [f"run-{number}" for number in range(count)]
        for first in range(0, count, 100):
            objects = [each for name in names[first : first + 100] for each in render(_job(name))]
            cluster.kubectl("create", "-n", namespace, "-f", "-", text=bundle(objects))
        words = ("get", "pods", "-n", namespace, "--field-selector", "status.phase=Running", "-o", "name")
        cluster.wait("all pods", lambda: len(cluster.kubectl(*words).split()) == 2 * count, timeout=RUN_FOR - IDLE - 30)
        yield namespace
    cluster.kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=600s", timeout=660)


def _job(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "framework": "plain",
        "num_nodes": 2,
        "image": "none",
        "command": ["true"],
        "agent": False,
        "annotations": {scale.RUN_FOR: f"{RUN_FOR}s"},
        "pod_template": scale.PLACEMENT,
    }


def _until(condition: Callable[[], bool], waiting: list[_Waiting]) -> None:
    until = time.monotonic() + 120
    while not condition():
        for each in waiting:
            if each.failed:
                each.finish()
        if time.monotonic() > until:
            raise RuntimeError("a process has not started to wait for all runs within 120 s")
        time.sleep(0.5)


def _references(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Returns the reference of each run in the form in which a worker passes it to the trigger."""
    found = []
    for each in cluster.get("jobsets", namespace)["items"]:
        metadata = {"name": each["metadata"]["name"], "uid": each["metadata"]["uid"], "labels": {}, "annotations": {}}
        top = {"apiVersion": each["apiVersion"], "kind": each["kind"], "target": "jobset"}
        found.append({**top, "metadata": metadata})
    return found


def _requests(out: Path) -> int:
    samples = _recording(out).samples if out.exists() else []
    return int(samples[-1]["requests"]) if samples else 0


def _recording(out: Path) -> Recording:
    lines = [line for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
    found = [json.loads(line) for line in lines]
    ends = {each["run"]: each["at"] for each in found if "run" in each}
    return Recording([each for each in found if "cpu" in each], ends)


def _finished(cluster: Cluster, namespace: str) -> dict[str, float]:
    """Returns the time at which each run has finished according to the API server, in whole seconds."""
    found = {}
    for each in cluster.get("jobsets", namespace)["items"]:
        done = next(row for row in each["status"]["conditions"] if row["type"] == "Completed")
        at = datetime.datetime.fromisoformat(done["lastTransitionTime"])
        found[each["metadata"]["name"]] = at.timestamp()
    return found


def _waits(recordings: dict[str, Recording], idle: float, busy: float) -> list[Row]:
    if any(each.ends for each in recordings.values()):
        raise RuntimeError("the first runs ended before all processes waited for all runs; the machine is too busy")
    costs = {way: each.cost(idle, busy) for way, each in recordings.items()}
    ours, result = costs["ours"], []
    for what, way in ((TRIGGER, "trigger"), (CLIENT, "client")):
        share = ours.cpu / ours.seconds / (costs[way].cpu / costs[way].seconds)
        text = f"{share:.4f} x CPU: {ours.a_minute()} against {costs[way].a_minute()}"
        met = share <= 1 / 20 if way == "trigger" else None
        result.append(Row(what, text, BUDGET if way == "trigger" else "", met))
    return result


def _ends(recordings: dict[str, Recording], busy: float, finished: dict[str, float]) -> Row:
    parts = []
    for way, each in recordings.items():
        cost = each.cost(busy, max(each.ends.values()))
        late = statistics.median(each.ends[run] - at for run, at in finished.items())
        parts.append(f"{way}: {cost.cpu:.1f} s CPU in {cost.seconds:.0f} s, median {late:.1f} s late")
    return Row(ENDS, "; ".join(parts), "")


def _listed(cluster: Cluster, namespace: str) -> Row:
    env = {**os.environ, "KUBECONFIG": cluster.kubeconfig}
    ours = [str(BIN / "stepset"), "list", "--backend", "kubernetes", "--namespace", namespace, "-o", "json"]
    theirs = [cluster.program, "get", "jobsets,pods", "-n", namespace]

    def run(words: list[str]) -> Any:
        return lambda: subprocess.run(words, env=env, stdout=subprocess.DEVNULL, check=True)

    pair = paired(run(ours), run(theirs), 5)
    walls = [statistics.median(each.wall for each in side) for side in (pair.ours, pair.theirs)]
    text = f"{pair.ratio('wall'):.2f} x wall ({walls[0]:.2f} s against {walls[1]:.2f} s), {pair.ratio('cpu'):.2f} x CPU"
    return Row(LIST, text, "")
