"""A pod whose container fails and is restarted by the kubelet, as in a StatefulSet."""

from __future__ import annotations

from textwrap import indent
from typing import Any

from tests.cluster.testbed.handle import Cluster


def two_starts(cluster: Cluster, then: str, first: str = "") -> dict[str, Any]:
    """Returns the spec of a pod that prints a line at each start: `started False`, then `started True`.

    Args:
        cluster: the cluster, which determines the image.
        then: Python code of the second start.
        first: Python code of the first start, which then fails.
    """
    code = f"""
import os, sys, time
again = os.path.exists("/keep/was")
print("started", again, flush=True)
if not again:
    open("/keep/was", "w").close()
{indent(first, "    ")}
    sys.exit(1)
{then}
"""
    spec: dict[str, Any] = cluster.pod_spec([cluster.python, "-c", code])
    spec["containers"][0].setdefault("volumeMounts", []).append({"name": "keep", "mountPath": "/keep"})
    spec.setdefault("volumes", []).append({"name": "keep", "emptyDir": {}})
    return {**spec, "restartPolicy": "OnFailure"}
