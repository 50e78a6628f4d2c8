"""Imports slow modules in threads, so that they do not block a triggerer's event loop."""

from __future__ import annotations

import asyncio
import importlib

MODULES = (
    "kubernetes.client",
    "airflow.providers.cncf.kubernetes.hooks.kubernetes",
    "stepset.backends.kubernetes.runs",
    "stepset_airflow.triggerer.shared_informer",
    "stepset_airflow.triggerer.task_observer",
    "stepset_airflow.page.async_writer",
)


async def import_in_thread() -> None:
    """Imports the modules that triggers need to follow runs."""
    for module in MODULES:
        await asyncio.to_thread(importlib.import_module, module)
