"""Logs followed in the triggerer's event loop, when the state of a pod arrives later than its output."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from tests.airflow.cluster.conftest import Tasks
from tests.cluster.proxy import Proxy, proxy_to
from tests.cluster.starts import two_starts

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

LINES = 50_000
"""Some 2 MB as the server sends them."""


def test_the_state_of_a_pod_s_second_start_may_arrive_after_its_lines(
    tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, namespace = tasks.runs.cluster, tasks.runs.namespace
    go = tmp_path / "go"
    first = f"for n in range({LINES}): print(n)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)"
    spec = two_starts(cluster, "print('at last', flush=True); time.sleep(600)", first)
    spec["containers"][0]["volumeMounts"].append({"name": "gate", "mountPath": str(tmp_path)})
    spec["volumes"].append({"name": "gate", "hostPath": {"path": str(tmp_path)}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again"}, "spec": spec}

    def now() -> LogPod:
        return log_pod(cluster.get("pod/again", namespace))

    def started() -> LogPod:
        cluster.apply(pod, namespace)
        cluster.wait("its first start", lambda: now().alive)
        early = now()
        assert early.restarts == 0
        return early

    def second_start() -> bool:
        return "at last" in cluster.kubectl("logs", "again", "-n", namespace)

    async def printed(proxy: Proxy) -> str:
        text = b""

        async def consume(output: PodOutput) -> None:
            nonlocal text
            text += b"".join(piece for pieces in output.batch.raw.values() for piece in pieces)

        async with client_of(ClusterAccess(namespace=namespace)) as client:
            logs = RunLogs(NamespacedClient(client, namespace), consume)
            early = await asyncio.to_thread(started)
            proxy.slow(50_000)
            logs.see([early])
            async with asyncio.timeout(120):
                while not text:
                    await asyncio.sleep(0.1)
            go.touch()
            await asyncio.to_thread(cluster.wait, "its second start", second_start)
            restarted = await asyncio.to_thread(now)
            proxy.slow(None)
            proxy.cut()  # during the lines of its first start
            asyncio.get_running_loop().call_later(2, logs.see, [restarted])
            async with asyncio.timeout(120):
                while b"at last" not in text:
                    await asyncio.sleep(0.1)
            await logs.close()
        return text.decode()

    with proxy_to(str(tasks.runs.kubeconfig), tmp_path) as (proxy, kubeconfig):
        extra = {"kube_config_path": kubeconfig, "namespace": namespace}
        connection = {"conn_type": "kubernetes", "extra": json.dumps(extra)}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
        lines = asyncio.run(printed(proxy)).splitlines()
    assert lines == ["started False", *map(str, range(LINES)), "started True", "at last"]
