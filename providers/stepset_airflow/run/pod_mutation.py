"""Applies the deployment's `pod_mutation_hook` to the pod templates of a run.

Airflow calls this hook for every pod that Airflow creates. But the controllers of the cluster create the pods of a run.
Therefore this module calls the hook for each pod template before the run is submitted. The hook receives the template
as a V1Pod without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset_airflow.airflow_internals import call_pod_mutation_hook, pod_of


def mutate_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a pod template (metadata and spec) with the changes of the hook.

    If the hook changes nothing, the function returns the same object. A changed template contains only fields that the
    installed kubernetes package supports.

    If the hook raises an exception to reject the pod, the function raises this exception.
    """
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = pod_of({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    call_pod_mutation_hook(pod)
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
