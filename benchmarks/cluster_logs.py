"""Compares two ways to read the logs of 16 ranks on a cluster.

One way is stepset's merged log. The other way is `kubectl logs`, called for one pod after the other.

The benchmark needs the cluster that docs/testing/cluster.md describes. If there is no cluster, the row states that
nothing was measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.testbed import handle

import stepset
from benchmarks.paired import Row, paired

_BIN = Path(sys.executable).parent
_RANKS, _LINES = 16, 20_000
_PRINTER = """
import os, sys
rank = os.environ["JOB_COMPLETION_INDEX"]
for n in range(0, {lines}, 1000):
    sys.stdout.write("".join(f"rank {{rank}} {{i}} {padding}\\n" for i in range(n, n + 1000)))
"""
_WHAT = f"`stepset logs` on a cluster, {_RANKS} ranks x {_LINES:,} lines, against `kubectl logs` of the {_RANKS} pods"
_BUDGET = ">= 0.8 x"


def rows(runs: int = 5) -> list[Row]:
    """Returns one row with the ratio of the lines per second."""
    try:
        cluster = handle.find()
    except handle.NoClusterError as error:
        return [Row(_WHAT, f"not measured: {error}", _BUDGET)]
    with cluster.namespace("bench") as namespace:
        job = {
            "name": "printer",
            "framework": "plain",
            "image": cluster.image,
            "num_nodes": _RANKS,
            "function": _PRINTER.format(lines=_LINES, padding="x" * 80),
            "pod_template": cluster.pod_template(),
        }
        objects = stepset.render(job, target="job")
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", text=text)
        cluster.kubectl("wait", "--for=condition=complete", "job/printer", "-n", namespace, "--timeout=280s")
        pods = [pod["metadata"]["name"] for pod in cluster.get("pods", namespace)["items"]]
        env = {**os.environ, "KUBECONFIG": cluster.kubeconfig}

        def lines(words: list[str]) -> int:
            return subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True).stdout.count(b"\n")

        merged = [str(_BIN / "stepset"), "logs", "printer", "--backend", "kubernetes", "--namespace", namespace]
        one_by_one = [[cluster.program, "logs", pod, "-n", namespace] for pod in pods]
        if lines(merged) != _RANKS * _LINES:
            raise RuntimeError(f"the merged log does not have {_RANKS * _LINES:,} lines")

        def ours() -> None:
            subprocess.run(merged, env=env, stdout=subprocess.DEVNULL, check=True)

        def theirs() -> None:
            for words in one_by_one:
                subprocess.run(words, env=env, stdout=subprocess.DEVNULL, check=True)

        pair = paired(ours, theirs, runs)
        speed = 1 / pair.ratio("wall")
        cpu = pair.ratio("cpu")
        return [Row(_WHAT, f"{speed:.2f} x as fast; {cpu:.2f} x its CPU", _BUDGET, speed >= 0.8)]
