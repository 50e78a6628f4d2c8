"""A site without a server, for what is to be seen without asking one."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepset.backends.kubernetes.client import connect
from stepset.backends.kubernetes.site import Site

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


def nowhere(directory: Path) -> Site:
    """A namespace on a server that is not there."""
    return Site(connect(kubeconfig(directory, 1)), "ns")
