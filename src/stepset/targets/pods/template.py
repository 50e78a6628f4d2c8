"""Renders a pod group as a pod template, for every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.plan.model import NODE, PodGroup
from stepset.plan.values import resolve
from stepset.spec.job import TrainingJob
from stepset.targets.metadata import pod_metadata
from stepset.targets.names import AGENT_DIR, CODE_DIR, InManifest, PodNames
from stepset.targets.names import CONTAINER as CONTAINER
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods import ssh
from stepset.targets.pods.env import container_env
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.placement import affinity_of, placement_of, with_own_topology
from stepset.targets.pods.security import RESTRICTED, restricted
from stepset.targets.pods.sidecars import with_sidecars
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.pods.volumes import AGENT_CONFIG, code_in_place, pod_volumes
from stepset.targets.request import RenderRequest

GRACE = 60
"""Seconds from SIGTERM to SIGKILL: long enough for a checkpoint."""

_AGENT_MARGIN = 10
"""Seconds of GRACE that the agent reserves to stop remaining processes and to write its verdict."""

AGENT_COMMAND = ("python3", "-I", "-S", f"{AGENT_DIR}/agent.py", "run", f"{AGENT_DIR}/{AGENT_CONFIG}", "--")


@dataclass(frozen=True)
class PodStyle:
    """The properties of pods that differ between targets."""

    names: PodNames
    rank_field: str | None  # the pod's field that contains its index in the group; None if there is none
    attempt_field: str | None = None  # the pod's field with the number of gang restarts; None if they are not counted
    restart_policy: str = "Never"
    scratch: bool = False  # whether pods need the scratch directory even without the agent
    trainer_env: frozenset[str] = field(default_factory=frozenset)  # variables that Kubeflow Trainer sets
    trainer_volumes: frozenset[str] = field(default_factory=frozenset)  # volumes that it mounts
    trainer_port: bool = False  # whether it opens the rendezvous port


def pod_template(
    request: RenderRequest, group: PodGroup, style: PodStyle, gang: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The pod template of one group, with the job's `pod_template` merged over it; `gang`: fields of its gang."""
    job, placement = request.job, placement_of(request.job, group)
    account = without_empty(serviceAccountName=job.service_account)
    volumes, mounts = pod_volumes(request, group, scratch=style.scratch, trainer_mounts=style.trainer_volumes)
    base: dict[str, Any] = {
        "metadata": pod_metadata(request, group.name),
        "spec": {
            "restartPolicy": style.restart_policy,
            "terminationGracePeriodSeconds": GRACE,
            # Services of the same namespace would add variables such as MASTER_PORT=tcp://...
            "enableServiceLinks": False,
            # No token in a training pod, unless the job has an account.
            **(account or {"automountServiceAccountToken": False}),
            **without_empty(
                priorityClassName=job.scheduling.priority_class,
                nodeSelector=dict(placement.node_selector),
                tolerations=list(placement.tolerations),
                affinity=affinity_of(job, request.plan, request.run, group),
            ),
            **_ssh_users(request, group),
            **_hydra_dns(request, group),
            "containers": [_container(request, group, style, mounts)],
            "volumes": volumes,
        },
    }
    template = merge(merge(base, gang or {}), overlay_of(job, group))
    template = with_sidecars(with_own_topology(template, group))
    if template["spec"].get("hostNetwork") and "dnsPolicy" not in template["spec"]:
        # Otherwise pods on the host's network cannot resolve cluster names.
        template["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet"
    return restricted(template) if job.security == RESTRICTED else template


def with_container(template: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A pod template with its training container changed."""
    containers = [change(row) if row["name"] == CONTAINER else row for row in template["spec"]["containers"]]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def grace_of(job: TrainingJob, group: PodGroup) -> int:
    """Seconds between the agent's SIGTERM and SIGKILL for the training code."""
    spec = overlay_of(job, group).get("spec")
    seconds = spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
    return max(1, (seconds if isinstance(seconds, int) else GRACE) - _AGENT_MARGIN)


def _container(
    request: RenderRequest, group: PodGroup, style: PodStyle, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    in_manifest = InManifest(style.names)
    command = [resolve(word, in_manifest) for word in group.command]
    command = ssh.server_command() if group.serves_ssh else [*ssh.server_prefix(request, group), *command]
    entries = [entry for entry in group.env if entry.name not in style.trainer_env] if style.trainer_env else group.env
    return without_empty(
        name=CONTAINER,
        image=group.image,
        command=command if group.agent is None else [*AGENT_COMMAND, *command],
        args=[resolve(word, in_manifest) for word in group.args],
        workingDir=CODE_DIR if code_in_place(request, group) else None,
        env=container_env(entries, style.names, style.rank_field, style.attempt_field),
        ports=[] if style.trainer_port else [{"containerPort": request.plan.ports[name]} for name in group.ports],
        resources=without_empty(requests=dict(group.resources.requests), limits=dict(group.resources.limits)),
        startupProbe=ssh.server_probe(request) if group.serves_ssh else None,
        # Without a verdict of the agent, the message is the last lines of the log.
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=mounts,
    )


def _ssh_users(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """The group by which an ordinary user reads the ssh keys; as in Kubeflow Trainer's runtimes."""
    keys = request.plan.ssh
    if keys is None or group.name not in keys.groups:
        return {}
    return {"securityContext": {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}}


def _hydra_dns(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Makes the launcher's short host name resolve, which Hydra's processes on the nodes connect to.

    Source: kubeflow/mpi-operator v0.8.0 pkg/controller/mpi_job_controller.go (newWorker); tested with MPICH 4.0.2.
    """
    if not needs_namespace(request.job) or group.name != NODE or request.namespace is None:
        return {}
    domain = f"{request.subdomain}.{request.namespace}.svc.{request.job.network.cluster_domain}"
    return {"dnsConfig": {"searches": [domain]}}


def needs_namespace(job: TrainingJob) -> bool:
    """Whether names in the manifests depend on the namespace."""
    return ssh.uses_hydra(job)
