"""Waits for runs by asking for each of them every ten seconds: HOW KUBECONFIG NAMESPACE COUNT OUT.

HOW is `trigger`, Airflow's KubernetesJobTrigger as KubernetesJobOperator defers to it, one for each run's Job; or
`client`, one client of kubernetes_asyncio that all share, asking for the JobSets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys

from samples import Samples

POLL = 10.0
"""Seconds: KubernetesJobOperator's default."""


async def by_trigger(kubeconfig: str, namespace: str, runs: list[str], samples: Samples) -> None:
    """Airflow's own trigger, nothing of it changed."""
    extra = {"extra__kubernetes__kube_config_path": kubeconfig}
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
    from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger

    logging.getLogger().addFilter(lambda record: False)

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


async def _all(waits: object, samples: Samples) -> None:
    async def tick() -> None:
        while True:
            samples.tick()
            await asyncio.sleep(1)

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*waits)  # type: ignore[misc]  # an iterator of coroutines
    ticking.cancel()


def main(how: str, kubeconfig: str, namespace: str, count: str, out: str) -> None:
    """Writes what it costs; ends when all runs are over."""
    runs = [f"run-{number}" for number in range(int(count))]
    wait = by_trigger if how == "trigger" else by_client
    asyncio.run(wait(kubeconfig, namespace, runs, Samples(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
