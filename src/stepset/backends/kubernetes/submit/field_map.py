"""Maps a field of a manifest, as an API server names it, to the field of the job file that determines it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.trial_pods import templates
from stepset.spec.template import is_whole, pod_spec
from stepset.targets.metadata import GROUP
from stepset.targets.names import CONTAINER
from stepset.targets.pods.placement import PLACEMENT_FIELDS, placement_field
from stepset.unstructured import rows

if TYPE_CHECKING:
    from stepset.plan.model import LaunchPlan, PodGroup
    from stepset.spec.job import TrainingJob

_POD_PART = r"(?=metadata\b|spec\b)"
_IN_JOBSET = rf"replicatedJobs(?:\[(?P<row>\d+)\])?\.template\.spec\.template\.{_POD_PART}"
# Kind -> the paths of its pod templates. Indices are optional: the paths in decoding errors have none.
_TEMPLATES = {
    "JobSet": re.compile(rf"spec\.{_IN_JOBSET}"),
    "TrainingRuntime": re.compile(rf"spec\.template\.spec\.{_IN_JOBSET}"),
    "Job": re.compile(rf"spec\.(?:tasks(?:\[(?P<row>\d+)\])?\.)?template\.{_POD_PART}"),
    "StatefulSet": re.compile(rf"spec\.template\.{_POD_PART}"),
    "Pod": re.compile(_POD_PART),
}
_WORKLOAD = (
    (r"spec\.(template\.spec\.)?(network\.subdomain|serviceName)\b", "network.subdomain"),
    (r"metadata\.name$", "name"),
    (r"metadata\.(labels|annotations)\b", r"\1"),
    (r".*\bttlSecondsAfterFinished$", "ttl"),
    (r".*\bactiveDeadlineSeconds$", "deadline"),
    (r".*\b(completions|parallelism|replicas|numNodes)$", "num_nodes"),
    (r"spec\.trainer\.numProcPerNode$", "procs_per_node"),
    (r"spec\.trainer\.(image|command|args)\b", r"\1"),
    (r"spec\.queue$", "scheduling.queue_name"),
    (r"spec\.priorityClassName$", "scheduling.priority_class"),
)
_POD = {
    "serviceAccountName": "service_account",
    "priorityClassName": "scheduling.priority_class",
    "nodeSelector": "scheduling.node_selector",
    "tolerations": "scheduling.tolerations",
    "affinity": "scheduling.affinity",
}
_TOKEN = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True)
class FieldMapper:
    """Maps fields of manifests to fields of the job file."""

    job: TrainingJob
    plan: LaunchPlan

    def field(self, manifest: Manifest, path: str) -> str | None:
        """Returns the job file's field that determines a field of a manifest, such as `image`; None if there is none.

        `path` is for example `spec.template.spec.containers[0].image`, with or without indices.
        """
        pattern = _TEMPLATES.get(manifest["kind"])
        if pattern is not None and (found := pattern.match(path)):
            try:
                return self._in_template(self._template(manifest, found), path[found.end() :])
            except LookupError:  # the path leads to something that stepset did not render
                return None
        for text, field in _WORKLOAD:
            if found := re.match(text, path):
                return found.expand(field)
        return None

    def resources(self, manifest: Manifest) -> str:
        """Returns the field to which a quota error refers.

        For a pod, returns the field that contains its resources. For any other object, returns its kind and name,
        because the quota limits the number of objects, which no field determines.
        """
        if GROUP not in (manifest["metadata"].get("labels") or {}):
            return f"{manifest['kind']} {manifest['metadata']['name']}"
        name = manifest["metadata"]["labels"][GROUP]
        if name == self.plan.success.group and not self.plan.group(name).in_world:
            return "framework.launcher_resources"
        role = self._role(manifest)
        return f"roles.{role}.resources" if role else "resources_per_node"

    def template(self, *rest: str) -> str:
        """Returns the path of a field in `pod_template`, which may contain a whole template or only its spec."""
        return ".".join(("pod_template", *(("spec",) if is_whole(self.job.pod_template) else ()), *rest))

    def scheduling(self, pod_field: str) -> str:
        """Returns the job file's field that determines a field of `_POD`, such as `priorityClassName`."""
        return self.template(pod_field) if pod_field in pod_spec(self.job.pod_template) else _POD[pod_field]

    def _template(self, manifest: Manifest, found: re.Match[str]) -> Manifest:
        """Returns the pod template that a path leads to; without an index, that of the nodes or the launcher."""
        pods = templates(manifest)
        if "row" not in found.groupdict() or len(pods) == 1:
            return pods[0]
        if found["row"] is not None:
            return pods[int(found["row"])]
        return next(pod for pod in pods if self._role(pod) is None)

    def _role(self, pod: Manifest) -> str | None:
        """Returns the role that a pod belongs to; None for nodes and for the launcher."""
        group = self._group(pod)
        return None if group.in_world or group.name == self.plan.success.group else group.name

    def _group(self, pod: Manifest) -> PodGroup:
        return self.plan.group(pod["metadata"]["labels"][GROUP])

    def _in_template(self, pod: Manifest, path: str) -> str | None:
        head, *rest = _tokens(path)
        if head == "metadata":
            return rest[0] if rest and rest[0] in ("labels", "annotations") else None
        if head != "spec" or not rest:
            return None
        if rest[0] in PLACEMENT_FIELDS & _POD.keys() and not (group := self._group(pod)).in_world:
            return f"{placement_field(self.job, group)}.{_POD[rest[0]].rpartition('.')[2]}"
        if rest[0] in _POD:
            return self.scheduling(rest[0])
        if rest[0] == "volumes" and len(rest) > 1 and rest[1].isdigit():
            volume = pod["spec"]["volumes"][int(rest[1])]
            claimed = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claimed in {each.claim for each in self.job.storage}:
                return "storage"
            return self.template("volumes", volume["name"], *rest[2:])
        if rest[0] == "containers":
            return self._in_container(pod, rest[1:])
        if rest[0] == "initContainers" and len(rest) > 1 and rest[1].isdigit():
            name = pod["spec"]["initContainers"][int(rest[1])]["name"]
            beside = any(row.get("name") == name for row in rows(pod_spec(self.job.pod_template), "containers"))
            return self.template("containers" if beside else "initContainers", name, *rest[2:])
        return self.template(*rest)

    def _in_container(self, pod: Manifest, rest: list[str]) -> str:
        containers = pod["spec"]["containers"]
        numbered = bool(rest) and rest[0].isdigit()
        container = containers[int(rest[0])] if numbered else containers[0]
        inner = rest[1:] if numbered else rest
        in_template = self.template("containers", *((container["name"],) if numbered else ()), *inner)
        if (container["name"] != CONTAINER and numbered) or not inner:
            return in_template
        prefix = f"roles.{role}." if (role := self._role(pod)) else ""
        if inner[0] == "env" and len(inner) > 1 and inner[1].isdigit():
            return f"{prefix}env.{container['env'][int(inner[1])]['name']}"
        if inner[0] == "resources":
            return self.resources(pod)
        return f"{prefix}{inner[0]}" if inner[0] in ("image", "command", "args") else in_template


def _tokens(path: str) -> list[str]:
    return [found[1] or found[2] for found in _TOKEN.finditer(path)] or [""]
