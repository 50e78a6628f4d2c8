"""Renders all objects of a run except the workload.

These objects are the ConfigMaps, the Secret with the ssh keys of an MPI job, and the NetworkPolicy.
"""

from __future__ import annotations

from typing import Any

from stepset.targets.config_maps import agent_object, code_object, file_object, ssh_secret
from stepset.targets.names import PodNames
from stepset.targets.network_policy import network_policy
from stepset.targets.pods import ssh
from stepset.targets.pods.agent_config import agent_config, config_key
from stepset.targets.pods.template import grace_of
from stepset.targets.request import RenderRequest


def companions(
    request: RenderRequest, names: PodNames, trainer_volumes: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Returns all objects of a run except the workload.

    Args:
        names: the names of the pods.
        trainer_volumes: the names of volumes. Kubeflow Trainer creates the ConfigMaps and Secrets for these volumes.
            Therefore the result does not contain these ConfigMaps and Secrets.
    """
    plan = request.plan
    configs = {
        config_key(group): agent_config(request, group, names, grace_of(request.job, group))
        for group in plan.groups
        if group.agent is not None
    }
    code = code_object(request)
    # The NetworkPolicy must exist before any pod starts. Pods cannot start before the ConfigMaps exist, so the
    # NetworkPolicy precedes the ConfigMaps.
    objects = [network_policy(request)] if request.job.network.policy else []
    objects += [agent_object(request, configs)] if configs or plan.has_rendezvous_id else []
    objects += [code] if code else []
    objects += [file_object(request, file, names) for file in plan.files if file.name not in trainer_volumes]
    if plan.ssh is not None:
        own_secret = ssh.SECRET_VOLUME not in trainer_volumes
        objects.append(ssh.ssh_config_map(request, plan.ssh, names, own_secret=own_secret))
        if own_secret:
            objects.append(ssh_secret(request))
    return objects
