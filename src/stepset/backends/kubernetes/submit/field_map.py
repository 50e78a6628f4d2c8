"""Finds the field of the job file that determines the value of a field in a manifest.

The error messages of an API server contain paths of fields in manifests. The functions have no side effects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.option_names import Interface
from stepset.spec.template import is_whole, pod_spec
from stepset.targets.metadata import GROUP
from stepset.targets.names import CODE_VOLUME, CONTAINER
from stepset.targets.pod_templates import template_path, templates_of
from stepset.targets.pods.placement import PLACEMENT_FIELDS, placement_field
from stepset.unstructured import rows

if TYPE_CHECKING:
    from stepset.plan.model import LaunchPlan, PodGroup
    from stepset.spec.job import TrainingJob

_POD_PART = r"(?=metadata\b|spec\b)"
_ROW = r"(?:\[(?P<row>\d+)\])?"  # paths in decoding errors have no indices, so indices are optional
_OF_EVERY_TARGET = (
    (r"metadata\.name$", "name"),
    (r"metadata\.(labels|annotations)\b", r"\1"),
    (r".*\bttlSecondsAfterFinished$", "ttl"),
    (r".*\bactiveDeadlineSeconds$", "deadline"),
    (r".*\b(completions|parallelism|replicas|numNodes)$", "num_nodes"),
)
_POD = {
    "serviceAccountName": "service_account",
    "priorityClassName": "scheduling.priority_class",
    "nodeSelector": "scheduling.node_selector",
    "tolerations": "scheduling.tolerations",
    "affinity": "scheduling.affinity",
}
_TOKEN = re.compile(r"([^.\[\]]+)|\[([^\[\]]*)\]")


@dataclass(frozen=True)
class FieldMapper:
    """Finds the fields of the job file that determine fields of manifests.

    Args:
        job: the job of the run.
        plan: the launch plan of the job.
        interface: the interface of the caller, which determines the names of options in error messages.
    """

    job: TrainingJob
    plan: LaunchPlan
    interface: Interface

    def field(self, manifest: Manifest, path: str) -> str | None:
        """Returns the field of the job file, such as `image`, that determines a field of a manifest.

        Returns None if there is no such field in the job file. `path` is the path of the field in the manifest, such as
        `spec.template.spec.containers[0].image`. Indices in the path may be omitted.
        """
        at = template_path(manifest)
        if at is not None and (found := _in_template(at).match(path)):
            try:
                return self._in_template(self._template(manifest, found), path[found.end() :])
            except (LookupError, ValueError, StopIteration):  # stepset has not rendered the field at this path
                return None
        from stepset.targets.kinds import TARGETS  # the renderers import pydantic, and this module is imported early

        own = (entry for spec in TARGETS.values() for entry in spec.manifest_fields.items())
        for text, field in (*_OF_EVERY_TARGET, *own):
            if found := re.match(text, path):
                return found.expand(field)
        return None

    def resources(self, manifest: Manifest) -> str:
        """Returns the field to which a quota error refers.

        If the object is a pod, returns the field of the job file that contains the pod's resources. If the object is
        not a pod, the quota limits the number of objects. No field determines the number of objects. Therefore this
        method returns the kind and the name of the object.
        """
        if GROUP not in (manifest["metadata"].get("labels") or {}):
            return f"{manifest['kind']} {manifest['metadata']['name']}"
        name = manifest["metadata"]["labels"][GROUP]
        if name == self.plan.success.group and not self.plan.group(name).in_world:
            return "framework.launcher_resources"
        role = self._role(manifest)
        return f"roles.{role}.resources" if role else "resources_per_node"

    def template(self, *rest: str) -> str:
        """Returns the path of a field in the job's `pod_template`.

        `pod_template` may contain a complete pod template or only the spec. `rest` is the path of the field in the
        spec.
        """
        return ".".join(("pod_template", *(("spec",) if is_whole(self.job.pod_template) else ()), *rest))

    def scheduling(self, pod_field: str) -> str:
        """Returns the field of the job file that determines `pod_field`.

        `pod_field` is a field in `_POD`, such as `priorityClassName`.
        """
        return self.template(pod_field) if pod_field in pod_spec(self.job.pod_template) else _POD[pod_field]

    def _template(self, manifest: Manifest, found: re.Match[str]) -> Manifest:
        """Returns the pod template to which a path refers.

        If the path has no index, returns the pod template of the nodes or of the launcher.
        """
        pods = templates_of(manifest)
        if "row" not in found.groupdict() or len(pods) == 1:
            return pods[0]
        if found["row"] is not None:
            return pods[int(found["row"])]
        return next(pod for pod in pods if self._role(pod) is None)

    def _role(self, pod: Manifest) -> str | None:
        """Returns the name of a pod's role; None if the pod is a node or the launcher."""
        role = self._group(pod).role
        return None if role is None else role.name

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
            if volume["name"] == CODE_VOLUME and self.job.code_volume is not None:
                return "code"
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


def _in_template(path: str) -> re.Pattern[str]:
    """Returns a pattern that matches the path of a pod template before `metadata` or `spec`."""
    prefix = re.escape(f"{path}.").replace(re.escape("[]"), _ROW) if path else ""
    return re.compile(prefix + _POD_PART)


def _tokens(path: str) -> list[str]:
    return [found[1] or found[2] for found in _TOKEN.finditer(path)] or [""]
