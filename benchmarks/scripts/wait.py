"""Waits for runs in one event loop, as a triggerer does: HOW KUBECONFIG NAMESPACE COUNT OUT.

HOW is `ours`, the trigger that DistributedTrainOperator defers to, one for each run, made from what OUT.runs holds (a
JSON list of what a worker hands over: each run's kind, name and uid); `trigger`, Airflow's
KubernetesJobTrigger as KubernetesJobOperator defers to it, one for each run's Job; or `client`, one client of
kubernetes_asyncio that all share, asking for the JobSets. The latter two ask for each run every ten seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from samples import Samples

POLL = 10.0
"""Seconds: KubernetesJobOperator's default."""


async def ours(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Our own trigger, nothing of it changed; no logs, which no other way here reads."""
    _connect_airflow(kubeconfig)
    import structlog

    from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger

    # What a worker hands over.
    there = {each["metadata"]["name"]: each for each in json.loads(Path(f"{samples.path}.runs").read_text())}
    access = {"kubernetes_conn_id": "kubernetes_default", "namespace": namespace}
    run_of_task: ContextVar[str] = ContextVar("run_of_task")
    waiting: set[str] = set()

    def look(logger: object, method: str, event: Any) -> str:
        """Notes the first log line that reports a run as running, and writes nothing."""
        run, line = run_of_task.get(""), str(event["event"])
        if run not in waiting and run in line and "running" in line.lower():
            waiting.add(run)
            samples.known(run)
        raise structlog.DropEvent

    structlog.configure(processors=[look], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    _count_requests(samples)

    async def wait(run: str) -> None:
        run_of_task.set(run)
        async for _ in DistributedTrainTrigger(access, there[run], sources=()).run():
            break
        samples.ended(run)

    await _all(map(wait, runs), samples, lambda: len(waiting) == len(runs))


def _count_requests(samples: Samples) -> None:
    """Counts what aiohttp sends in this process."""
    import aiohttp

    send = aiohttp.ClientSession._request

    async def counted(*args: Any, **options: Any) -> aiohttp.ClientResponse:
        samples.requests += 1
        return await send(*args, **options)

    aiohttp.ClientSession._request = counted


async def by_trigger(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Airflow's own trigger, nothing of it changed."""
    _connect_airflow(kubeconfig)
    from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger

    async def wait(run: str) -> None:
        await asyncio.sleep(random.uniform(0, POLL))
        trigger = KubernetesJobTrigger(
            job_name=f"{run}-node-0",
            job_namespace=namespace,
            pod_names=[],
            pod_namespace=namespace,
            base_container_name="node",
            kubernetes_conn_id="kubernetes_default",
            poll_interval=POLL,
        )
        poll = trigger.hook.get_job_status

        async def counted(**which: str) -> object:
            samples.requests += 1
            return await poll(**which)

        trigger.hook.get_job_status = counted
        async for _ in trigger.run():
            break
        samples.ended(run)

    await _all(map(wait, runs), samples)


async def by_client(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """The cheapest way to poll: one connection pool, and only the object that says whether the run is over."""
    from kubernetes_asyncio import client, config

    await config.load_kube_config(kubeconfig)
    async with client.ApiClient() as api:
        objects = client.CustomObjectsApi(api)

        async def wait(run: str) -> None:
            await asyncio.sleep(random.uniform(0, POLL))
            while True:
                samples.requests += 1
                found = await objects.get_namespaced_custom_object(
                    "jobset.x-k8s.io", "v1alpha2", namespace, "jobsets", run
                )
                if found.get("status", {}).get("terminalState"):
                    samples.ended(run)
                    return
                await asyncio.sleep(POLL)

        await _all(map(wait, runs), samples)


def _connect_airflow(kubeconfig: str) -> None:
    """Airflow's connection, and no log."""
    extra = {"extra__kubernetes__kube_config_path": kubeconfig}
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
    import structlog
    from airflow.triggers import base  # noqa: F401  # sets up logging, so that comes first

    logging.getLogger().addFilter(lambda record: False)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


async def _all(waits: Iterable[Awaitable[None]], samples: Samples, begun: Callable[[], bool] = lambda: True) -> None:
    """Waits for all; what it costs is written from when all have begun to wait."""

    async def tick() -> None:
        while not begun():
            await asyncio.sleep(0.2)
        while True:
            samples.tick()
            await asyncio.sleep(1)

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*waits)
    samples.tick(now=True)
    ticking.cancel()


def main(how: str, kubeconfig: str, namespace: str, count: str, out: str) -> None:
    """Writes what it costs; ends when all runs are over."""
    runs = [f"run-{number}" for number in range(int(count))]
    wait = {"ours": ours, "trigger": by_trigger, "client": by_client}[how]
    asyncio.run(wait(kubeconfig, namespace, runs, Samples(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
