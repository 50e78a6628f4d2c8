"""Changes that a site makes to every pod, made to the templates that controllers make pods from. Pure.

Called by submit.py with what the backend was given: Airflow's provider gives its `pod_mutation_hook`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from stepset.backends.kubernetes.trial_pods import templates

Manifest = Mapping[str, Any]
ChangePod = Callable[[Manifest], Manifest]
"""A pod template, metadata and spec -> the same, changed."""

_HAVE_PODS = ("JobSet", "Job", "StatefulSet", "TrainingRuntime")


def with_changed_pods(manifest: Manifest, change: ChangePod) -> Manifest:
    """A manifest whose pod templates are changed, and only they.

    Args:
        manifest: any of a run's.
        change: is given each template once.
    """
    if manifest["kind"] not in _HAVE_PODS:
        return manifest
    changed = deepcopy(dict(manifest))
    for template in templates(changed):
        assert isinstance(template, dict)
        new = change(deepcopy(template))
        template.clear()
        template.update(new)
    return changed
