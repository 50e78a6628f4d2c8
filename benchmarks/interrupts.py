"""From SIGTERM to the end of a Kubeflow step in a pod, its run suspended: argoexec leaves it about a second.

Needs KFP's environment: .venvs/kfp/bin/python -m benchmarks interrupts
"""

from __future__ import annotations

import json
import statistics
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.cluster.testbed.handle import Cluster

from benchmarks.on_cluster import with_cluster
from benchmarks.paired import Row

WHAT = "a Kubeflow step told to end: its run suspended and the step's process gone"
BUDGET = "<= 300 ms"
_BUDGET = 0.3
_TRAINING = "import time\ntime.sleep(86400)\n"

# In place of KFP's launcher: the same step again and again, each time told to end when its training runs, as argoexec
# tells it: the whole process group at once. The shell before Python dies of it, so the end of the output counts.
_LAUNCHER = """\
import json, os, random, signal, subprocess, sys, time
for turn in range({turns}):
    child = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.PIPE, text=True)
    before = []
    for line in child.stdout:
        before.append(line)
        if ": Running" in line:
            break
    time.sleep(random.uniform(0, 5))
    begin = time.monotonic()
    os.killpg(child.pid, signal.SIGTERM)
    after, told = [], None
    for line in child.stdout:
        after.append(line)
        if "told to end" in line:
            told = time.monotonic() - begin
    gone = time.monotonic() - begin
    child.wait()
    resumed = any("it is resumed" in line for line in before)
    suspended = any("is suspended" in line for line in after)
    print(json.dumps(dict(turn=turn, told=told, gone=gone, resumed=resumed, suspended=suspended)), flush=True)
    if not suspended:
        print("".join(before + after), flush=True)
"""


def rows(turns: int = 60) -> list[Row]:
    """One row."""
    if find_spec("kfp") is None:
        return [Row(WHAT, "not measured: run it with .venvs/kfp/bin/python", BUDGET)]
    return with_cluster(lambda cluster: _measured(cluster, turns), (WHAT, BUDGET))


def _measured(cluster: Cluster, turns: int) -> list[Row]:
    from tests.kfp.steps import WORKFLOWS, Steps

    cluster.kubectl("apply", "-f", "-", text=WORKFLOWS)
    cluster.kubectl("wait", "--for=condition=Established", "crd/workflows.argoproj.io", "--timeout=60s")
    with cluster.namespace("bench") as namespace, tempfile.TemporaryDirectory(prefix="stepset-bench-") as directory:
        steps = Steps(cluster, namespace, Path(directory), launcher=_LAUNCHER.format(turns=turns))
        steps.prepare()
        pod = steps.start(_TRAINING, num_nodes=1)
        steps.wait(pod, timeout=60.0 * turns)
        log = steps.log(pod)
    found = [json.loads(line) for line in log.splitlines() if line.startswith('{"turn"')]
    if len(found) != turns or not all(each["resumed"] for each in found[1:]):
        raise RuntimeError(f"{len(found)} of {turns} turns, not every one resumed:\n{log}")
    suspended = sum(each["suspended"] for each in found)
    gone = [1000 * each["gone"] for each in found]
    centiles = statistics.quantiles(gone, n=20, method="inclusive")
    text = (
        f"median {statistics.median(gone):.0f} ms, 95 of 100 within {centiles[-1]:.0f} ms,"
        f" the slowest {max(gone):.0f} ms; {suspended} of {turns} runs suspended"
    )
    return [Row(WHAT, text, BUDGET, max(gone) <= 1000 * _BUDGET and suspended == turns)]
