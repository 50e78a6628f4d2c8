"""Changes pod templates with a function that an administrator configures, such as Airflow's `pod_mutation_hook`."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.pod_templates import templates_of
from stepset.targets.pods.sidecars import with_sidecars

ChangePod = Callable[[Manifest], Manifest]
"""A function that returns a changed copy of a pod template. A pod template has the fields metadata and spec."""


def with_changed_pods(manifest: Manifest, change: ChangePod) -> Manifest:
    """Returns a copy of a manifest in which `change` was applied to every pod template.

    If `change` adds a container, this container becomes a sidecar, like a container in the job's `pod_template`, unless
    the container has `restartPolicy: Never`.
    """
    if not templates_of(manifest):
        return manifest
    changed = deepcopy(dict(manifest))
    for template in templates_of(changed):
        assert isinstance(template, dict)
        keeps = {row["name"] for row in template["spec"]["containers"]}
        new = with_sidecars(change(deepcopy(template)), keeps)
        template.clear()
        template.update(new)
    return changed
