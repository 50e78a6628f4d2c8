"""Waits for runs in one event loop, like Airflow's triggerer.

The command is wait.py HOW KUBECONFIG NAMESPACE COUNT OUT. HOW is one of:

- `ours`: uses one trigger of DistributedTrainOperator for each run. The file OUT.runs contains the references of the
  runs (kind, name and uid) as a JSON list, in the form in which a worker passes them.
- `trigger`: uses one trigger of Airflow's KubernetesJobOperator for the Job of each run. A trigger polls every ten
  seconds.
- `client`: uses one shared client of kubernetes_asyncio, which polls each JobSet every ten seconds.
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
"""The number of seconds between two polls, which is the default of KubernetesJobOperator."""


async def ours(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Waits for the runs with stepset's triggers, without modification.

    The triggers read no logs, because the other functions of this script read no logs.
    """
    _connect_airflow(kubeconfig)
    import structlog

    from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger

    references = {each["metadata"]["name"]: each for each in json.loads(Path(f"{samples.path}.runs").read_text())}
    access = {"kubernetes_conn_id": "kubernetes_default", "namespace": namespace}
    run_of_task: ContextVar[str] = ContextVar("run_of_task")
    waiting: set[str] = set()

    def record(logger: object, method: str, event: Any) -> str:
        """Records the time at which a trigger first reports that a run is running. Writes no log lines."""
        run, line = run_of_task.get(""), str(event["event"])
        if run not in waiting and run in line and "running" in line.lower():
            waiting.add(run)
            samples.known(run)
        raise structlog.DropEvent

    structlog.configure(processors=[record], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    _count_requests(samples)

    async def wait(run: str) -> None:
        run_of_task.set(run)
        async for _ in DistributedTrainTrigger(access, references[run], sources=()).run():
            break
        samples.ended(run)

    await _all(map(wait, runs), samples, lambda: len(waiting) == len(runs))


def _count_requests(samples: Samples) -> None:
    """Counts the requests of aiohttp in this process."""
    import aiohttp

    send = aiohttp.ClientSession._request

    async def counted(*args: Any, **options: Any) -> aiohttp.ClientResponse:
        samples.requests += 1
        return await send(*args, **options)

    aiohttp.ClientSession._request = counted


async def by_trigger(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Waits for the runs with Airflow's triggers, without modification."""
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
    """Waits with the cheapest possible polls.

    All polls share one connection pool, and read only the object that shows whether the run has finished.
    """
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
    """Configures a connection of Airflow, and discards Airflow's log."""
    extra = {"extra__kubernetes__kube_config_path": kubeconfig}
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
    import structlog
    from airflow.triggers import base  # noqa: F401  # configures logging, so it must be imported first

    logging.getLogger().addFilter(lambda record: False)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


async def _all(waits: Iterable[Awaitable[None]], samples: Samples, started: Callable[[], bool] = lambda: True) -> None:
    """Waits for all runs. Writes samples as soon as all waits have started."""

    async def tick() -> None:
        while not started():
            await asyncio.sleep(0.2)
        while True:
            samples.tick()
            await asyncio.sleep(1)

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*waits)
    samples.tick(now=True)
    ticking.cancel()


def main(how: str, kubeconfig: str, namespace: str, count: str, out: str) -> None:
    """Writes samples until all runs have finished."""
    runs = [f"run-{number}" for number in range(int(count))]
    wait = {"ours": ours, "trigger": by_trigger, "client": by_client}[how]
    asyncio.run(wait(kubeconfig, namespace, runs, Samples(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
