"""Applies the deployment's `pod_mutation_hook`, which Airflow calls for every pod it creates, to a run's pod templates.

The cluster's controllers create a run's pods. Therefore the hook receives each group's template once, as a V1Pod
without a name, before the run is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset_airflow.airflow_internals import call_pod_mutation_hook, pod_of


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a pod template (metadata and spec) with the hook's changes; the same object if there are none.

    A changed template lacks fields that the installed kubernetes package does not know. Raises the hook's exception,
    with which a deployment rejects pods.
    """
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = pod_of({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    call_pod_mutation_hook(pod)
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
