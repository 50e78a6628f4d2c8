"""A namespace without a server, for what can be tested without one; kubeconfigs of servers on this machine."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
from stepset.backends.kubernetes.api.connection import connect
from stepset.backends.kubernetes.backend import KubernetesBackend

RUN = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "run", "uid": "u"}}


def kubeconfig(directory: Path, port: int) -> str:
    """A kubeconfig for a server on this machine that wants no credentials; its path."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "c", "user": {}}],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def nowhere(directory: Path) -> KubernetesBackend:
    """A namespace on a server that is not there."""
    return KubernetesBackend(connect(kubeconfig(directory, 1)), namespace="ns")


def client_at(port: int) -> Client:
    """A client of a server on this machine that wants no credentials."""
    from kubernetes import client

    async def load() -> ClientConfig:
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        return ClientConfig(configuration, Namespace("default"))

    return Client(load)
