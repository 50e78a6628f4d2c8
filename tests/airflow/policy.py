"""Registers a site's pod policy with Airflow, as an entry point of the group `airflow.policy` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def pods_changed_by(change: Callable[[Any], None]) -> Iterator[None]:
    """Makes `change`, which receives a V1Pod, Airflow's `pod_mutation_hook` during the block."""
    from airflow.policies import hookimpl
    from airflow.settings import get_policy_plugin_manager

    class Policy:
        @staticmethod
        @hookimpl
        def pod_mutation_hook(pod: Any) -> None:
            change(pod)

    manager = get_policy_plugin_manager()
    manager.register(Policy)
    try:
        yield
    finally:
        manager.unregister(Policy)
