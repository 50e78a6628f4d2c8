"""A pod whose container fails and is started again by its kubelet, which is what StatefulSets' pods do."""

from __future__ import annotations

from textwrap import indent
from typing import Any

from tests.cluster.testbed.handle import Cluster


def two_starts(cluster: Cluster, then: str, first: str = "") -> dict[str, Any]:
    """The spec of one that tells of each start by a line, `started False` or `started True`.

    Args:
        cluster: which has its image.
        then: Python of its second start.
        first: of its first, which fails when that is done.
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
