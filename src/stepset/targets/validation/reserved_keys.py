"""The keys of labels and annotations that a job cannot set, because controllers or stepset set them.

Sources: kubernetes v1.36 pkg/apis/batch/types.go, pkg/apis/apps/types.go; kubernetes-sigs/jobset v0.12.0
api/jobset/v1alpha2/jobset_types.go; volcano.sh/apis v1.13 batch/v1alpha1/labels.go; kubeflow/trainer v2.3.0
pkg/constants/constants.go.
"""

from __future__ import annotations

from stepset.targets.metadata import PREFIX

_PREFIXES = (
    PREFIX,
    "jobset.sigs.k8s.io/",
    "batch.kubernetes.io/",
    "statefulset.kubernetes.io/",
    "trainer.kubeflow.org/",
)
_KEYS = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "volcano.sh/job-name",
        "volcano.sh/job-namespace",
        "volcano.sh/job-retry-count",
        "volcano.sh/job-version",
        "volcano.sh/task-index",
        "volcano.sh/task-spec",
    }
)


def is_reserved(key: str) -> bool:
    """Returns whether stepset or a controller sets labels or annotations with this key."""
    return key.startswith(_PREFIXES) or key in _KEYS
