"""Applies an installation's changes to pod templates, such as Airflow's `pod_mutation_hook`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.trial_pods import templates
from stepset.targets.pods.sidecars import with_sidecars

ChangePod = Callable[[Manifest], Manifest]
"""Returns a changed copy of a pod template (metadata and spec)."""

_HAVE_PODS = ("JobSet", "Job", "StatefulSet", "TrainingRuntime")


def with_changed_pods(manifest: Manifest, change: ChangePod) -> Manifest:
    """Returns a manifest with every pod template changed, and nothing else.

    Containers that `change` adds become sidecars, like those of the job's `pod_template`.
    """
    if manifest["kind"] not in _HAVE_PODS:
        return manifest
    changed = deepcopy(dict(manifest))
    for template in templates(changed):
        assert isinstance(template, dict)
        new = with_sidecars(change(deepcopy(template)))
        template.clear()
        template.update(new)
    return changed
