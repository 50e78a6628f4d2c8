"""Renders all objects of a run except the workload.

These objects are the ConfigMaps, the Secret with the ssh keys of an MPI job, the NetworkPolicy and the Service.
"""

from __future__ import annotations

from typing import Any

from stepset.targets.config_maps import agent_object, code_object, file_object, ssh_secret
from stepset.targets.metadata import RUN, metadata
from stepset.targets.names import PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods import ssh
from stepset.targets.pods.agent_config import agent_config, config_key
from stepset.targets.pods.template import grace_of
from stepset.targets.request import RenderRequest


def companions(
    request: RenderRequest, names: PodNames, trainer_volumes: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Returns all objects of a run except the workload and the headless Service.

    Args:
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
    objects = [_network_policy(request)] if request.job.network.policy else []
    objects += [agent_object(request, configs)] if configs or plan.has_rendezvous_id else []
    objects += [code] if code else []
    objects += [file_object(request, file, names) for file in plan.files if file.name not in trainer_volumes]
    if plan.ssh is not None:
        own_secret = ssh.SECRET_VOLUME not in trainer_volumes
        objects.append(ssh.ssh_config_map(request, plan.ssh, names, own_secret=own_secret))
        if own_secret:
            objects.append(ssh_secret(request))
    return objects


def _network_policy(request: RenderRequest) -> dict[str, Any]:
    """Returns the NetworkPolicy of a run. Only pods of the run may connect to pods of the run.

    The policy restricts incoming connections on all ports. Outgoing connections are not restricted. The policy selects
    the pods of the run by a label. The policy does not protect against accounts that may create pods, because their
    pods can have the same label (docs/security.md).
    """
    own_pods = {"matchLabels": {RUN: request.run}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(request, request.run),
        "spec": {
            "podSelector": own_pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": own_pods}]}],
        },
    }


def headless_service(request: RenderRequest) -> dict[str, Any]:
    """Returns the headless Service that gives pods their DNS names. For some targets, a controller creates the Service.

    The Service publishes the DNS names of pods before the pods are ready, because ranks connect to each other when they
    start.
    """
    ports = [{"name": name, "port": port} for name, port in request.plan.ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(request, request.subdomain),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN: request.run},
            **without_empty(ports=ports),
        },
    }
