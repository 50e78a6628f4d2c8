"""Applies a site's `pod_mutation_hook`, Airflow's hook for every pod it creates, to a run's pod templates.

The cluster's controllers create a run's pods. So the hook gets each group's template once, as a V1Pod without a name,
before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset_airflow.airflow_internals import call_pod_mutation_hook, pod_of


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a pod template (metadata and spec) as the hook changes it; the same object if it changes nothing.

    If the hook changes something, fields that this Airflow's kubernetes package does not know are lost. Raises whatever
    the hook raises: a site refuses pods this way.
    """
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = pod_of({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    call_pod_mutation_hook(pod)
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
