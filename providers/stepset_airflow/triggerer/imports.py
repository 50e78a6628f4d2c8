"""The imports of triggers that take seconds: the event loop of a triggerer must not wait for them."""

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
    """Imports the modules with which a trigger follows runs, each in a thread."""
    for module in MODULES:
        await asyncio.to_thread(importlib.import_module, module)
