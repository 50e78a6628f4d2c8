"""Creates an admission policy.

The policy mounts this machine's programs into all pods that use the image of the tests' steps.

The image of the tests' steps contains no programs. If a Workflow creates a pod, the pod gets the programs from the
Workflow's pod patch. The training pods and the watchers of runs are not created by a Workflow. A watcher never has a
pod template that could add the programs. The pipelines in pipelines/ set no pod template for training pods, because
users run these pipelines with images that contain the programs. Therefore the policy adds the programs to training pods
and watchers.
"""

from __future__ import annotations

import json
from typing import Any

from stepset.backends.kubernetes.orphans.watcher import WATCHES
from stepset.targets.metadata import RUN

from .images import pod_patch
from .layout import STEP_IMAGE

POLICY = "programs-of-this-machine"
"""The name of the policy and of its binding. The policy and the binding are cluster-scoped objects."""
KINDS = "mutatingadmissionpolicybindings,mutatingadmissionpolicies"
_GROUP = "admissionregistration.k8s.io/v1"


def policy() -> list[dict[str, Any]]:
    """Returns the policy and its binding."""
    condition = (
        "has(object.metadata.labels)"
        f" && ({json.dumps(RUN)} in object.metadata.labels || {json.dumps(WATCHES)} in object.metadata.labels)"
        f" && object.spec.containers[0].image == {json.dumps(STEP_IMAGE)}"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return [
        {
            "apiVersion": _GROUP,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": POLICY},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"name": "image-of-steps", "expression": condition}],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _added()}}],
            },
        },
        {
            "apiVersion": _GROUP,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY},
            "spec": {"policyName": POLICY},
        },
    ]


def _added() -> str:
    """Returns a CEL list of patches that add volumes and volume mounts.

    The patches also work if the pod has no volumes or no volume mounts.
    """
    patch = pod_patch()
    mounts = patch["containers"][0]["volumeMounts"]
    volumes, container = "/spec/volumes", "/spec/containers/0/volumeMounts"
    return (
        f"(has(object.spec.volumes) ? [] : [{_patch(volumes, [])}])"
        f" + (has(object.spec.containers[0].volumeMounts) ? [] : [{_patch(container, [])}])"
        f" + [{', '.join(_patch(f'{volumes}/-', each) for each in patch['volumes'])}]"
        f" + [{', '.join(_patch(f'{container}/-', each) for each in mounts)}]"
    )


def _patch(path: str, value: object) -> str:
    return f'JSONPatch{{op: "add", path: {json.dumps(path)}, value: {_cel(value)}}}'


def _cel(value: object) -> str:
    """Returns a JSON value as a CEL expression.

    The expression uses `dyn`, because a mapping may have values of several types.
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: dyn({_cel(each)})' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_cel, value))}]"
    return json.dumps(value)
