"""A backend whose server does not exist, for tests without a server; kubeconfigs and clients of local servers."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.backend import KubernetesBackend

RUN = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "run", "uid": "u"}}


def kubeconfig(directory: Path, port: int, token: str = "", namespace: str = "default") -> str:
    """Writes a kubeconfig for a server on this machine; returns its path. Without a token it has no credentials."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "c", "user": {"token": token} if token else {}}],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def nowhere(directory: Path) -> KubernetesBackend:
    """Returns a backend whose server does not exist."""
    return KubernetesBackend(connect(kubeconfig(directory, 1)), namespace="ns")


def client_at(port: int) -> Client:
    """Returns a client of a server on this machine that requires no credentials."""
    from kubernetes import client

    async def load() -> ClientConfig:
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        return ClientConfig(configuration, Namespace("default"))

    return Client(load)
