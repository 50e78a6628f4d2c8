"""From a field of a manifest to the field of the job file it came from. Pure.

Called for what an API server says about a manifest, which its author never saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.targets.identity import GROUP
from stepset.targets.pod import CONTAINER

# Where the pod template lies: JobSet, TrainingRuntime; Volcano Job; Job, StatefulSet. Decoders leave indices out.
_TEMPLATES = (
    re.compile(r"^(spec(?:\.template\.spec)?\.replicatedJobs)(?:\[(\d+)\])?\.template\.spec\.template\.(?=metadata|spec)"),
    re.compile(r"^(spec\.tasks)(?:\[(\d+)\])?\.template\.(?=metadata|spec)"),
    re.compile(r"^(spec)\.template\.(?=metadata|spec)"),
)  # fmt: skip
_WORKLOAD = (
    (r"spec\.(network\.subdomain|serviceName)\b", "network.subdomain"),
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
_CONTAINER_FIELDS = {"image": "image", "resources": "resources", "command": "command", "args": "args"}
_TOKEN = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True)
class JobWords:
    """Says fields of manifests in the words of the job file.

    Args:
        job: what was asked for.
        plan: what every pod gets.
    """

    job: TrainingJob
    plan: LaunchPlan

    def field(self, manifest: Mapping[str, Any], path: str) -> str | None:
        """The job file's field behind a manifest's.

        Args:
            manifest: a rendered object.
            path: such as `spec.template.spec.containers[0].image`, with or without indices.

        Returns:
            Such as `image`; None where there is none.
        """
        if manifest["kind"] == "Pod":
            return self._in_template(manifest, path)
        for pattern in _TEMPLATES:
            if found := pattern.match(path):
                rows = _walk(manifest, found[1])
                row = rows[int(found[2] or 0)] if isinstance(rows, list) else {"template": rows["template"]}
                template = row["template"]
                template = template["spec"].get("template", template)
                return self._in_template(template, path[found.end() :])
        for text, field in _WORKLOAD:
            if found := re.match(text, path):
                return found.expand(field)
        return None

    def resources(self, manifest: Mapping[str, Any]) -> str:
        """The field with a pod's resources."""
        role = self._role(manifest)
        return f"roles.{role}.resources" if role else "resources_per_node"

    def template(self, *rest: str) -> str:
        """A field below `pod_template`, as this job writes it: a whole template or its spec alone."""
        whole = "spec" in self.job.pod_template or "metadata" in self.job.pod_template
        return ".".join(("pod_template", *(("spec",) if whole else ()), *rest))

    def scheduling(self, pod_field: str) -> str:
        """The field behind a pod's `priorityClassName`, `serviceAccountName` or the like."""
        given = self.job.pod_template
        spec = given.get("spec") if "spec" in given or "metadata" in given else given
        by_hand = isinstance(spec, Mapping) and pod_field in spec
        return self.template(pod_field) if by_hand else _POD[pod_field]

    def _role(self, pod: Mapping[str, Any]) -> str | None:
        """The role a pod belongs to; None for nodes and what runs the job."""
        name = pod["metadata"]["labels"][GROUP]
        group = self.plan.group(name)
        return None if group.in_world or name == self.plan.success.group else name

    def _in_template(self, pod: Mapping[str, Any], path: str) -> str | None:
        head, *rest = _tokens(path)
        if head == "metadata":
            return rest[0] if rest and rest[0] in ("labels", "annotations") else None
        if head != "spec" or not rest:
            return None
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
        return self.template(*rest)

    def _in_container(self, pod: Mapping[str, Any], rest: list[str]) -> str:
        containers = pod["spec"]["containers"]
        numbered = bool(rest) and rest[0].isdigit()
        container = containers[int(rest[0])] if numbered else containers[0]
        inner = rest[1:] if numbered else rest
        if (container["name"] != CONTAINER and numbered) or not inner:
            return self.template("containers", *((container["name"],) if numbered else ()), *inner)
        prefix = f"roles.{role}." if (role := self._role(pod)) else ""
        if inner[0] == "env" and len(inner) > 1 and inner[1].isdigit():
            return f"{prefix}env.{container['env'][int(inner[1])]['name']}"
        if inner[0] == "resources":
            return self.resources(pod)
        if inner[0] in _CONTAINER_FIELDS:
            return f"{prefix}{_CONTAINER_FIELDS[inner[0]]}"
        return self.template("containers", *((container["name"],) if numbered else ()), *inner)


def _walk(manifest: Mapping[str, Any], path: str) -> Any:
    value: Any = manifest
    for name in path.split("."):
        value = value[name]
    return value


def _tokens(path: str) -> list[str]:
    def parts() -> Iterator[str]:
        for found in _TOKEN.finditer(path):
            yield found[1] or found[2]

    return list(parts()) or [""]
