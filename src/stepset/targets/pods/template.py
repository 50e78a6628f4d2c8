"""Renders a pod group as a pod template. All targets use this module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.plan.model import NODE, PodGroup
from stepset.plan.values import resolve
from stepset.spec.job import TrainingJob
from stepset.spec.quantity import rank_grace
from stepset.spec.template import node_container
from stepset.targets.metadata import pod_metadata
from stepset.targets.names import AGENT_DIR, CODE_DIR, INSTALLER_KEY, RUN_DIR, InManifest, PodNames
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
from stepset.unstructured import part

AGENT_COMMAND = ("python3", "-I", "-S", f"{AGENT_DIR}/agent.py", "run", f"{AGENT_DIR}/{AGENT_CONFIG}", "--")


@dataclass(frozen=True)
class PodStyle:
    """The properties of pods that depend on the target.

    Args:
        rank_field: the field of a pod that contains the index of the pod in its group. None if there is no such field.
        attempt_field: the field of a pod that contains the number of gang restarts. None if there is no such field.
        scratch: whether pods need the scratch directory even without the agent.
        trainer_env: the names of the variables that Kubeflow Trainer sets.
        trainer_volumes: the names of the volumes that Kubeflow Trainer mounts.
        trainer_port: whether Kubeflow Trainer adds the rendezvous port to the container.
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
    """Returns the pod template of a group, including the changes by the job's `pod_template`.

    Args:
        gang: the fields that assign the pods to a gang.
    """
    job, placement = request.job, placement_of(request.job, group)
    account = without_empty(serviceAccountName=job.service_account)
    volumes, mounts = pod_volumes(request, group, scratch=style.scratch, trainer_mounts=style.trainer_volumes)
    base: dict[str, Any] = {
        "metadata": pod_metadata(request, group.name),
        "spec": {
            "restartPolicy": style.restart_policy,
            "terminationGracePeriodSeconds": request.job.termination_grace_period,
            # With service links, a Service named `master` would set the variable MASTER_PORT to tcp://...
            "enableServiceLinks": False,
            # A pod mounts a token only if the job specifies a service account.
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
        # Pods in the host's network need this DNS policy to resolve the names of other pods.
        template["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet"
    return restricted(template) if job.security == RESTRICTED else template


def agent_command(request: RenderRequest, group: PodGroup) -> tuple[str, ...]:
    """Returns the prefix of a pod's command. The prefix installs the requirements and starts the agent."""
    if group.agent is None:
        return ()
    if not request.installer:
        return AGENT_COMMAND
    required = request.sources.requirements
    # `$` is escaped as `$$`, because Kubernetes would otherwise replace references such as `$(NAME)`.
    text = json.dumps({"requirements": required.packages, "python": required.python}).replace("$", "$$")
    return ("python3", "-I", f"{AGENT_DIR}/{INSTALLER_KEY}", text, f"{RUN_DIR}/requirements", "--", *AGENT_COMMAND)


def with_container(template: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Applies the function `change` to the training container of a pod template, and returns the new pod template."""
    containers = [change(row) if row["name"] == CONTAINER else row for row in template["spec"]["containers"]]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def grace_of(job: TrainingJob, group: PodGroup) -> int:
    """Returns the number of seconds that the agent waits after SIGTERM before it sends SIGKILL to the training code.

    If the container has a preStop hook, the time for the hook is subtracted. The grace period starts with the hook, and
    the kubelet sends SIGTERM after the hook (kubernetes v1.36 pkg/kubelet/kuberuntime/kuberuntime_container.go,
    killContainer).
    """
    overlay = overlay_of(job, group)
    spec = overlay.get("spec")
    seconds = spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
    slept = part(node_container(overlay), "lifecycle", "preStop", "sleep").get("seconds")
    left = (seconds if isinstance(seconds, int) else job.termination_grace_period) - (
        slept if isinstance(slept, int) else 0
    )
    return rank_grace(left)


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
        command=[*agent_command(request, group), *command],
        args=[resolve(word, in_manifest) for word in group.args],
        workingDir=CODE_DIR if code_in_place(request, group) else None,
        env=container_env(entries, style.names, style.rank_field, style.attempt_field),
        ports=[] if style.trainer_port else [{"containerPort": request.plan.ports[name]} for name in group.ports],
        resources=without_empty(requests=dict(group.resources.requests), limits=dict(group.resources.limits)),
        startupProbe=ssh.server_probe(request) if group.serves_ssh else None,
        # If the agent writes no termination message, Kubernetes uses the last lines of the log.
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=mounts,
    )


def _ssh_users(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Returns the `fsGroup` of pods that mount ssh keys. Without this group, only root could read the keys.

    The kubelet makes all files of the volume readable by this group, so pods in which root uses the keys have no group.

    The group ID is the same as in the runtimes of Kubeflow Trainer.
    """
    keys = request.plan.ssh
    if keys is None or group.name not in keys.groups or ssh.used_by_root(request, keys):
        return {}
    return {"securityContext": {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}}


def _hydra_dns(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Returns the DNS settings with which nodes can resolve the short host name of the launcher.

    Hydra's processes on the nodes connect to the launcher by its short host name. Source: kubeflow/mpi-operator v0.8.0
    pkg/controller/mpi_job_controller.go (newWorker), tested with MPICH 4.0.2.
    """
    if not ssh.uses_hydra(request.job) or group.name != NODE or request.namespace is None:
        return {}
    domain = f"{request.subdomain}.{request.namespace}.svc.{request.job.network.cluster_domain}"
    return {"dnsConfig": {"searches": [domain]}}
