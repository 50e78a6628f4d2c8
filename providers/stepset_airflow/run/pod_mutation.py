"""Applies a site's `pod_mutation_hook`, Airflow's hook for every pod it creates, to a run's pod templates.

The cluster's controllers create a run's pods. So the hook gets each group's template once, as a V1Pod without a name,
before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a pod template (metadata and spec) as the hook changes it; the same object if it changes nothing.

    If the hook changes something, fields that this Airflow's kubernetes package does not know are lost. Raises whatever
    the hook raises: a site refuses pods this way.
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
