"""Waits for runs in one event loop, as a triggerer does: HOW KUBECONFIG NAMESPACE COUNT OUT.

HOW is `ours`, the trigger that DistributedTrainOperator defers to, one for each run; `trigger`, Airflow's
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
from typing import Any

from samples import Samples

POLL = 10.0
"""Seconds: KubernetesJobOperator's default."""
_KIND = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}


async def ours(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Our own trigger, nothing of it changed; no logs, which no other way here reads."""
    _connect_airflow(kubeconfig)
    import aiohttp

    from stepset.backends.kubernetes.api.connection import connect
    from stepset.backends.kubernetes.api.resources import WORKLOADS
    from stepset_airflow import shared_informer
    from stepset_airflow.connection import ClusterAccess
    from stepset_airflow.triggers import DistributedTrainTrigger, reference

    send = aiohttp.ClientSession._request

    async def counted(*args: Any, **options: Any) -> aiohttp.ClientResponse:
        samples.requests += 1
        return await send(*args, **options)

    aiohttp.ClientSession._request = counted
    # What a worker hands over; one at a time, so that their reading is no part of what waiting takes of memory.
    with connect(kubeconfig) as connection:
        path = WORKLOADS["jobset"].path(namespace)
        there = {run: reference({**_KIND, **connection.get(f"{path}/{run}").body}, "jobset") for run in runs}
    access = ClusterAccess(namespace=namespace).to_dict()

    async def wait(run: str) -> None:
        async for _ in DistributedTrainTrigger(access, there[run], sources=()).run():
            break
        samples.ended(run)

    def all_wait() -> bool:
        informers = shared_informer._shared.get(asyncio.get_running_loop(), {}).values()
        listed = (each for each in informers if all(one.listed for one in each.informer.reflectors.values()))
        return sum(each.users for each in listed) == len(runs)

    await _all(map(wait, runs), samples, all_wait)


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
    samples.tick()
    ticking.cancel()


def main(how: str, kubeconfig: str, namespace: str, count: str, out: str) -> None:
    """Writes what it costs; ends when all runs are over."""
    runs = [f"run-{number}" for number in range(int(count))]
    wait = {"ours": ours, "trigger": by_trigger, "client": by_client}[how]
    asyncio.run(wait(kubeconfig, namespace, runs, Samples(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
