"""A site's policy of pods, made known to Airflow as its entry points `airflow.policy` are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def pods_changed_by(change: Callable[[Any], None]) -> Iterator[None]:
    """While it lasts, Airflow's `pod_mutation_hook` does this to a V1Pod."""
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
