"""Measures how long a Kubeflow step takes after SIGTERM to suspend its run and to exit.

argoexec kills a step one second after SIGTERM. The benchmark needs the environment with KFP:
.venvs/kfp/bin/python -m benchmarks interrupts
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.cluster.testbed.handle import Cluster

from benchmarks.on_cluster import with_cluster
from benchmarks.paired import Row

WHAT = "a terminated Kubeflow step: until its run is suspended and its process has ended"
BUDGET = "<= 300 ms"
_BUDGET = 0.3
_TRAINING = "import time\ntime.sleep(86400)\n"

# This program replaces KFP's launcher. The program starts the same step repeatedly, and terminates the step during the
# training. Like argoexec, the program sends SIGTERM to the whole process group. The signal also kills the shell that
# has started Python. Therefore the program treats the end of the output as the exit of the step.
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
    after, reported = [], None
    for line in child.stdout:
        after.append(line)
        if "received signal" in line:
            reported = time.monotonic() - begin
    ended = time.monotonic() - begin
    child.wait()
    resumed = any("it is resumed" in line for line in before)
    answered = any("is suspended" in line for line in after)
    print(json.dumps(dict(turn=turn, reported=reported, ended=ended, resumed=resumed, answered=answered)), flush=True)
"""


def rows(turns: int = 60) -> Iterator[Row]:
    """Returns one row."""
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
        (last,) = steps.jobsets()
    found = [json.loads(line) for line in log.splitlines() if line.startswith('{"turn"')]
    if len(found) != turns:
        raise RuntimeError(f"{len(found)} of {turns} turns:\n{log}")
    # The benchmark counts a run as suspended if the next turn finds a suspended run. The exit code of the step is not
    # sufficient, because the request to suspend the run may succeed even if the step receives no response.
    suspended = sum(each["resumed"] for each in found[1:]) + bool(last["spec"].get("suspend"))
    answered = sum(each["answered"] for each in found)
    ended = [1000 * each["ended"] for each in found]
    slow = sum(each > 1000 * _BUDGET for each in ended)
    centiles = statistics.quantiles(ended, n=20, method="inclusive")
    text = (
        f"median {statistics.median(ended):.0f} ms, 90 % within {centiles[17]:.0f} ms,"
        f" the slowest {max(ended):.0f} ms ({slow} of {turns} later than 300 ms);"
        f" {suspended} of {turns} runs suspended, {answered} with an answer"
    )
    return [Row(WHAT, text, BUDGET, not slow and suspended == turns)]
