"""From a pod group to a pod template: what every target puts its pods together with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.plan.model import NODE, PodGroup
from stepset.plan.values import resolve
from stepset.spec.job import TrainingJob
from stepset.spec.resources import Resources
from stepset.targets import ssh
from stepset.targets.env import container_env
from stepset.targets.identity import pod_metadata
from stepset.targets.names import AGENT_DIR, CODE_DIR, InManifest, PodNames
from stepset.targets.names import CONTAINER as CONTAINER
from stepset.targets.overlay import merge
from stepset.targets.request import RenderRequest
from stepset.targets.volumes import AGENT_CONFIG, code_in_place, pod_volumes

GRACE = 60
"""Seconds a pod has to end after SIGTERM: long enough for a checkpoint."""

_AGENT_MARGIN = 10
"""Of these the agent keeps so many to stop what is left and to write its verdict."""

AGENT_COMMAND = ("python3", "-I", "-S", f"{AGENT_DIR}/agent.py", "run", f"{AGENT_DIR}/{AGENT_CONFIG}", "--")


@dataclass(frozen=True)
class PodStyle:
    """What pods look like in one target.

    Args:
        names: how pods are called and places read.
        rank_field: the pod's field that holds its index in its group; None where it has none.
        attempt_field: the pod's field that counts gang restarts; None where nobody counts.
        restart_policy: of the pods.
        scratch: pods need the scratch directory even without the agent.
        trainer_env: variables that Kubeflow Trainer sets by itself.
        trainer_volumes: volumes that Kubeflow Trainer mounts by itself.
        trainer_port: Kubeflow Trainer opens the rendezvous port by itself.
    """

    names: PodNames
    rank_field: str | None
    attempt_field: str | None = None
    restart_policy: str = "Never"
    scratch: bool = False
    trainer_env: frozenset[str] = field(default_factory=frozenset)
    trainer_volumes: frozenset[str] = field(default_factory=frozenset)
    trainer_port: bool = False


def pod_template(
    request: RenderRequest, group: PodGroup, style: PodStyle, gang: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The pod template of one group: `metadata` and `spec`, with the job's `pod_template` merged over it.

    Args:
        request: what is rendered.
        group: which pods.
        style: what the target makes of pods.
        gang: what marks the pods as a gang's: a part of a pod template.
    """
    job = request.job
    volumes, mounts = pod_volumes(request, group, scratch=style.scratch, trainer_mounts=style.trainer_volumes)
    base: dict[str, Any] = {
        "metadata": pod_metadata(request, group.name),
        "spec": {
            "restartPolicy": style.restart_policy,
            "terminationGracePeriodSeconds": GRACE,
            # Services of the same namespace would add variables such as MASTER_PORT=tcp://...
            "enableServiceLinks": False,
            **_service_account(job),
            **_scheduling(job),
            **_ssh_users(request, group),
            **_hydra_dns(request, group),
            "containers": [_container(request, group, style, mounts)],
            "volumes": volumes,
        },
    }
    template = merge(merge(base, gang or {}), overlay_of(job, group))
    if template["spec"].get("hostNetwork") and "dnsPolicy" not in template["spec"]:
        # On the host's network pods find no cluster name otherwise.
        template["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet"
    return template


def overlay_of(job: TrainingJob, group: PodGroup) -> dict[str, Any]:
    """`pod_template` as a pod template, for the pods of one group.

    It may be given as a whole template or as its `spec` alone. Its resources are those of a node (they count in
    procs_per_node), so that pods beside the world do not get them.
    """
    given = job.pod_template
    template = dict(given) if "spec" in given or "metadata" in given else {"spec": given}
    if group.in_world or not isinstance(template.get("spec"), Mapping):
        return template
    containers = [
        {k: v for k, v in row.items() if k != "resources"}
        if isinstance(row, Mapping) and row.get("name") == CONTAINER
        else row
        for row in template["spec"].get("containers", [])
    ]
    return {**template, "spec": {**template["spec"], **({"containers": containers} if containers else {})}}


def grace_of(job: TrainingJob, group: PodGroup) -> int:
    """Seconds the agent leaves the training code between SIGTERM and SIGKILL."""
    spec = overlay_of(job, group).get("spec")
    given = spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
    total = given if isinstance(given, int) else GRACE
    return max(1, total - _AGENT_MARGIN)


def command_words(request: RenderRequest, group: PodGroup, names: PodNames) -> list[str]:
    """The command of a group's container, the agent included; empty where the image's own is to run."""
    in_manifest = InManifest(names)
    command = [resolve(word, in_manifest) for word in group.command]
    command = ssh.server_command() if group.serves_ssh else [*ssh.server_prefix(request, group), *command]
    return [*AGENT_COMMAND, *command] if group.agent is not None else command


def _container(
    request: RenderRequest, group: PodGroup, style: PodStyle, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    names = style.names
    command = command_words(request, group, names)
    args = [resolve(word, InManifest(names)) for word in group.args]
    entries = [entry for entry in group.env if entry.name not in style.trainer_env]
    env = container_env(entries, names, style.rank_field, style.attempt_field)
    ports = [] if style.trainer_port else [{"containerPort": request.plan.ports[name]} for name in group.ports]
    resources = _resources(group.resources)
    return {
        "name": CONTAINER,
        **({"image": group.image} if group.image else {}),
        **({"command": command} if command else {}),
        **({"args": args} if args else {}),
        **({"workingDir": CODE_DIR} if code_in_place(request, group) else {}),
        **({"env": env} if env else {}),
        **({"ports": ports} if ports else {}),
        **({"resources": resources} if resources else {}),
        **({"startupProbe": ssh.server_probe(request)} if group.serves_ssh else {}),
        # Without a verdict of the agent's the last lines are better than nothing.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _resources(resources: Resources) -> dict[str, Any]:
    return {
        **({"requests": dict(resources.requests)} if resources.requests else {}),
        **({"limits": dict(resources.limits)} if resources.limits else {}),
    }


def _service_account(job: TrainingJob) -> dict[str, Any]:
    """No token in a training pod, unless the job asks for an account."""
    return (
        {"serviceAccountName": job.service_account} if job.service_account else {"automountServiceAccountToken": False}
    )


def _scheduling(job: TrainingJob) -> dict[str, Any]:
    scheduling = job.scheduling
    return {
        **({"priorityClassName": scheduling.priority_class} if scheduling.priority_class else {}),
        **({"nodeSelector": dict(scheduling.node_selector)} if scheduling.node_selector else {}),
        **({"tolerations": list(scheduling.tolerations)} if scheduling.tolerations else {}),
        **({"affinity": dict(scheduling.affinity)} if scheduling.affinity else {}),
    }


def _ssh_users(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """The group by which an ordinary user reads the ssh keys; that of Kubeflow Trainer's runtimes."""
    keys = request.plan.ssh
    if keys is None or group.name not in keys.groups:
        return {}
    return {"securityContext": {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}}


def _hydra_dns(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Hydra's processes on the nodes call back to the launcher by its short host name; this makes it resolve.

    Source: kubeflow/mpi-operator v0.8.0 pkg/controller/mpi_job_controller.go (newWorker); executed with MPICH 4.0.2.
    """
    if not needs_namespace(request.job) or group.name != NODE or request.namespace is None:
        return {}
    return {
        "dnsConfig": {"searches": [f"{request.subdomain}.{request.namespace}.svc.{request.job.network.cluster_domain}"]}
    }


def needs_namespace(job: TrainingJob) -> bool:
    """Whether names in the manifests depend on the namespace."""
    return ssh.uses_hydra(job)
