"""Airflow's `pod_mutation_hook`, by which a site changes every pod that Airflow makes, for a run's pod templates.

Used by cluster_run.py in a worker. Pods of a run are made by the cluster's controllers, so the hook sees each group's
template once, as a V1Pod without a name of its own, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod template as the site wants it; the very same where the hook has not changed anything.

    Args:
        template: metadata and spec. What this Airflow's kubernetes package does not know of it is lost where the hook
            changes something.

    Raises:
        Exception: whatever the hook raises: a site refuses pods this way.
    """
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
    from airflow.settings import pod_mutation_hook
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = PodGenerator.deserialize_model_dict({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    pod_mutation_hook(pod)  # type: ignore[no-untyped-call]  # Airflow's
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
