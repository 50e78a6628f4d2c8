"""The API kinds of each target: which objects an API server stores for a run, and what their controllers do with them.

Programs that only read runs import this module. Therefore the module imports neither the renderers nor pydantic. The
package `kinds` contains the other descriptions, with the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from stepset.defaults import TARGET
from stepset.unstructured import Fields, text

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_GROUP_OF_JOBSET = "jobset.sigs.k8s.io/replicatedjob-name"
_VOLCANO = ("volcano.sh/task-index", "volcano.sh/task-spec", "volcano.sh/job-retry-count")


class ApiKind(NamedTuple):
    """A kind of object, and its names in the API."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """The field `apiVersion` of the objects."""
        return f"{self.group}/{self.version}"


class PodMarks(NamedTuple):
    """The labels or annotations of a pod that state the place of the pod. Empty if there is no such label.

    Args:
        pod_index: the label with the index of the pod in its group.
        group: the label with the name of the group.
        attempt: the label with the number of restarts of the gang.
    """

    pod_index: str
    group: str
    attempt: str


@dataclass(frozen=True, kw_only=True)
class WorkloadKind:
    """The kind of a target's workloads. No field has a default value: a default would be wrong without an error.

    Args:
        api: the kind of the workloads.
        product: the product whose installation adds the kind to a cluster. Empty if every cluster serves the kind.
        templates: the kind that contains the pod templates. It can be the kind of the workload, or a second kind in the
            same API group, which stepset also creates.
        template_path: the path of the pod templates. `[]` follows the name of a list.
        service: whether stepset creates the headless Service of the pods.
        followed: the kinds that the controller creates and that stepset reads, without the pods. Each kind has the
            label that contains the name of the run. If the label is empty, the object has the name of the run.
        pod_owner: the kind of the objects that create the pods.
        suspension: the fields of `spec` that suspend a workload. Empty if a workload cannot be suspended.
        deletion: the propagation policy with which stepset deletes a workload (`stop.delete`).
        finishes: whether the controller reports the end of a run. If it does not, the pods decide.
        own_queue: whether the controller has queues of its own and schedules gangs. Kueue does not queue such a
            workload.
        marks: the labels or annotations that state the place of a pod.
        reserved_keys: the keys of labels and annotations that the controller sets. A key that ends with `/` stands for
            all keys with this prefix.
    """

    api: ApiKind
    product: str
    templates: ApiKind
    template_path: str
    service: bool
    followed: tuple[tuple[ApiKind, str], ...]
    pod_owner: ApiKind
    suspension: Mapping[str, Any]
    deletion: Literal["Foreground", "Background"]
    finishes: bool
    own_queue: bool
    marks: PodMarks
    reserved_keys: tuple[str, ...]


_JOBSET = ApiKind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
_JOB = ApiKind("batch", "v1", "Job", "jobs")
_RUNTIME = ApiKind("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")
_STATEFULSET = ApiKind("apps", "v1", "StatefulSet", "statefulsets")
_VOLCANO_JOB = ApiKind("batch.volcano.sh", "v1alpha1", "Job", "jobs")

_JOB_KEYS = ("batch.kubernetes.io/", "controller-uid", "job-name")
_JOBS_OF_JOBSET = (_JOB, "jobset.sigs.k8s.io/jobset-name")

# Sources of the reserved keys: kubernetes v1.36 pkg/apis/batch/types.go, pkg/apis/apps/types.go; kubernetes-sigs/jobset
# v0.12.0 api/jobset/v1alpha2/jobset_types.go; volcano.sh/apis v1.13 batch/v1alpha1/labels.go; kubeflow/trainer v2.3.0
# pkg/constants/constants.go.
WORKLOAD_KINDS: Mapping[str, WorkloadKind] = {
    "jobset": WorkloadKind(
        api=_JOBSET,
        product="JobSet",
        templates=_JOBSET,
        template_path="spec.replicatedJobs[].template.spec.template",
        service=False,
        followed=(_JOBS_OF_JOBSET,),
        pod_owner=_JOB,
        suspension={"suspend": True},
        deletion="Foreground",
        finishes=True,
        own_queue=False,
        marks=PodMarks(COMPLETION_INDEX, _GROUP_OF_JOBSET, RESTART_ATTEMPT),
        reserved_keys=("jobset.sigs.k8s.io/", *_JOB_KEYS),
    ),
    "trainjob": WorkloadKind(
        api=ApiKind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
        product="Kubeflow Trainer",
        templates=_RUNTIME,
        template_path="spec.template.spec.replicatedJobs[].template.spec.template",
        service=False,
        followed=((_JOBSET, ""), _JOBS_OF_JOBSET),
        pod_owner=_JOB,
        suspension={"suspend": True},
        deletion="Background",
        finishes=True,
        own_queue=False,
        marks=PodMarks(COMPLETION_INDEX, _GROUP_OF_JOBSET, RESTART_ATTEMPT),
        reserved_keys=("trainer.kubeflow.org/", "jobset.sigs.k8s.io/", *_JOB_KEYS),
    ),
    "statefulset": WorkloadKind(
        api=_STATEFULSET,
        product="",
        templates=_STATEFULSET,
        template_path="spec.template",
        service=True,
        followed=(),
        pod_owner=_STATEFULSET,
        suspension={"replicas": 0},
        deletion="Foreground",
        finishes=False,
        own_queue=False,
        marks=PodMarks("apps.kubernetes.io/pod-index", "", ""),
        reserved_keys=("statefulset.kubernetes.io/", "apps.kubernetes.io/pod-index", "controller-revision-hash"),
    ),
    "job": WorkloadKind(
        api=_JOB,
        product="",
        templates=_JOB,
        template_path="spec.template",
        service=True,
        followed=(),
        pod_owner=_JOB,
        suspension={"suspend": True},
        deletion="Foreground",
        finishes=True,
        own_queue=False,
        marks=PodMarks(COMPLETION_INDEX, "", ""),
        reserved_keys=_JOB_KEYS,
    ),
    "volcano": WorkloadKind(
        api=_VOLCANO_JOB,
        product="Volcano",
        templates=_VOLCANO_JOB,
        template_path="spec.tasks[].template",
        service=False,
        followed=(),
        pod_owner=_VOLCANO_JOB,
        suspension={},
        deletion="Foreground",
        finishes=True,
        own_queue=True,
        marks=PodMarks(*_VOLCANO),
        reserved_keys=(*_VOLCANO, "volcano.sh/job-name", "volcano.sh/job-namespace", "volcano.sh/job-version"),
    ),
}
"""A mapping from the names of the targets to the kinds of their workloads."""

TARGET_NAMES = tuple(WORKLOAD_KINDS)
TARGET_LIST = f"{', '.join(TARGET_NAMES[:-1])} or {TARGET_NAMES[-1]}"
"""The names of the targets in texts for users."""
TARGET_LIST_WITH_DEFAULT = TARGET_LIST.replace(TARGET, f"{TARGET} (default)", 1)

CREATORS = frozenset(each.api.kind for each in WORKLOAD_KINDS.values() if each.followed)
"""The kinds whose controllers create Jobs or JobSets."""

_BY_KIND = {(each.api.group, each.api.kind): name for name, each in WORKLOAD_KINDS.items()}
if len(_BY_KIND) < len(WORKLOAD_KINDS):
    raise TypeError("two targets have workloads of the same kind, so the target of a workload is ambiguous")


def workload_kind(workload: Fields) -> WorkloadKind:
    """Returns the kind of a workload. Raises KeyError for an object of another kind."""
    return WORKLOAD_KINDS[target_of_workload(workload) or ""]


def target_of_workload(workload: Fields) -> str | None:
    """Returns the target of a workload. Returns None for an object of another kind."""
    return _BY_KIND.get((text(workload, "apiVersion").partition("/")[0], text(workload, "kind")))
