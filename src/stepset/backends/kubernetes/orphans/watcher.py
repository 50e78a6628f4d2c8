"""Renders the watcher of a run. The watcher is a Job. The pod of this Job watches the owner of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stepset.backends.kubernetes.api.resources import PODS, Manifest, Resource, resource_of
from stepset.backends.orphan_policy import OrphanStop, WorkflowStep
from stepset.targets.metadata import PREFIX, RUN
from stepset.targets.optional_fields import without_empty
from stepset.targets.rbac import ORPHAN_ACCOUNT

WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows")
WATCHES = f"{PREFIX}watches"
"""The label of a watcher. The value of the label is the name of the run.

The watcher does not have the label RUN, because the watcher is not an object of the run."""
PLACEMENT = ("imagePullSecrets", "nodeSelector", "tolerations")
"""The fields that are copied to the watcher's pod from the pod of the step or from the training pods."""
_RETRIES = 1000
"""The maximum number of restarts of the watcher's pod.

The number is large, because nodes may fail many times while the run exists."""
_TTL = 300
"""Seconds after which a finished watcher is deleted."""


def watcher(workload: Manifest, training: Mapping[str, Any], orphan: OrphanStop) -> dict[str, Any]:
    """Returns the Job that watches the owner of a run.

    Args:
        workload: the run's workload in the form that the server has returned.
        training: the image and the placement of the training pods (`image_and_placement`).
        orphan: the owner, and whether the watcher suspends or deletes the run.
    """
    about, off = workload["metadata"], {"sidecar.istio.io/inject": "false"}
    labels = {"app.kubernetes.io/name": ORPHAN_ACCOUNT, WATCHES: about["name"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{ORPHAN_ACCOUNT}-{about['uid']}",
            "namespace": about["namespace"],
            "labels": labels,
            "ownerReferences": [
                {
                    **{key: workload[key] for key in ("apiVersion", "kind")},
                    **{key: about[key] for key in ("name", "uid")},
                    # Many clusters, such as OpenShift, require an additional permission to block an owner's deletion.
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "backoffLimit": _RETRIES,
            "ttlSecondsAfterFinished": _TTL,
            "template": {
                "metadata": {"labels": {**labels, **off}, "annotations": off},
                "spec": _pod(workload, training, orphan),
            },
        },
    }


def _pod(workload: Manifest, training: Mapping[str, Any], orphan: OrphanStop) -> dict[str, Any]:
    about = workload["metadata"]
    origin = orphan.pod or training
    # A node that runs a pod of the run has already pulled the training image, which may be large.
    near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {RUN: about["name"]}}}
    preferred = [{"weight": 100, "podAffinityTerm": near}]
    return {
        "restartPolicy": "OnFailure",
        "serviceAccountName": ORPHAN_ACCOUNT,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        # The Pod Security level `restricted` requires these fields. Without `runAsUser`, many images use root.
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        **without_empty(**{key: origin.get(key) for key in PLACEMENT}),
        **({} if orphan.pod else {"affinity": {"podAffinity": {_PREFERRED: preferred}}}),
        "containers": [
            {
                "name": "watcher",
                "image": origin["image"],
                "command": ["python3", "-I", "-S", "-u", "-c", _escaped(program_text())],
                "args": [_escaped(json.dumps(config(workload, orphan)))],
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"cpu": "500m", "memory": "128Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
    }


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def config(workload: Manifest, orphan: OrphanStop) -> dict[str, Any]:
    """Returns the configuration of the watcher's program."""
    about, owner = workload["metadata"], orphan.owner
    run = {"path": f"{resource_of(workload).path(about['namespace'])}/{about['name']}", "uid": about["uid"]}
    if isinstance(owner, WorkflowStep):
        path = f"{WORKFLOWS.path(about['namespace'])}/{owner.workflow}"
        return {"run": run, "owner": {"path": path, "uid": owner.uid, "node": owner.node}, "how": orphan.how}
    path = f"{PODS.path(about['namespace'])}/{owner.name}"
    return {"run": run, "owner": {"path": path, "uid": owner.uid}, "how": orphan.how}


def _escaped(text: str) -> str:
    """Escapes a word of a container's command. Kubernetes expands `$(NAME)` and replaces `$$` by `$`."""
    return text.replace("$", "$$")


@cache
def program_text() -> str:
    """Returns the text of the watcher's program."""
    return (Path(__file__).parent / "watch_owner.py").read_text(encoding="utf-8")
