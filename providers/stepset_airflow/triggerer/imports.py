"""Imports slow modules in threads. In the main thread, the imports would block the event loop of a triggerer."""

from __future__ import annotations

import asyncio
import importlib

MODULES = (
    "kubernetes.client",
    "airflow.providers.cncf.kubernetes.hooks.kubernetes",
    "stepset.backends.kubernetes.cluster_runs",
    "stepset_airflow.triggerer.shared_informer",
    "stepset_airflow.triggerer.task_observer",
    "stepset_airflow.page.async_writer",
)


async def import_in_thread() -> None:
    """Imports MODULES without blocking the event loop. Triggers follow runs with these modules."""
    for module in MODULES:
        await asyncio.to_thread(importlib.import_module, module)
