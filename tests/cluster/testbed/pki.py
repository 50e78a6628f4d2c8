"""Certificates and kubeconfigs of the cluster, created at every start with the machine's openssl.

`down` deletes all of them, and they give access only to an API server that listens inside the cluster's own network.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from . import process
from .layout import API_URL, CLUSTER_DOMAIN, CONFIG, CONTROL_ADDRESS, PKI, SERVICE_API_ADDRESS, Node

DAYS = "30"
WEBHOOK_DIRECTORY = PKI / "webhook"


def create(nodes: tuple[Node, ...]) -> None:
    """Creates the certificate authorities, all certificates and the service accounts' key pair."""
    WEBHOOK_DIRECTORY.mkdir(parents=True)
    PKI.chmod(0o700)
    _authority("ca")
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{CLUSTER_DOMAIN}"]
    addresses = ["127.0.0.1", CONTROL_ADDRESS, SERVICE_API_ADDRESS]
    names = [*(f"DNS:{name}" for name in ("localhost", *service)), *(f"IP:{address}" for address in addresses)]
    _certificate("apiserver", "/CN=kube-apiserver", ",".join(names))
    # The controllers expect the file names tls.crt and tls.key.
    _certificate("webhook/tls", "/CN=webhooks", "DNS:localhost,IP:127.0.0.1")
    _certificate("admin", "/O=system:masters/CN=admin")
    # With this certificate the API server authenticates to aggregated API servers (Kueue's). It must have its own
    # authority, not that of clients.
    _authority("front-proxy-ca")
    _certificate("front-proxy-client", "/CN=front-proxy-client", authority="front-proxy-ca")
    for user in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _certificate(user, f"/CN=system:{user}")
    for node in nodes:
        _certificate(node.name, f"/O=system:nodes/CN=system:node:{node.name}")
    _openssl("genrsa", "-out", PKI / "service-account.key", "2048")
    _openssl("rsa", "-in", PKI / "service-account.key", "-pubout", "-out", PKI / "service-account.pub")


def authority() -> str:
    """The authority's certificate in the format of a webhook's caBundle: base64 of PEM."""
    return _base64(PKI / "ca.crt")


def kubeconfig(user: str, path: Path | None = None) -> Path:
    """Writes a self-contained kubeconfig for a certificate of `create`, with mode 0600.

    Args:
        user: name of the certificate: admin, kube-scheduler, node-a ...
        path: the file; default: in the cluster's configuration directory.
    """
    path = path or CONFIG / f"{user}.kubeconfig"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stepset-cluster",
        "clusters": [
            {"name": "stepset-cluster", "cluster": {"server": API_URL, "certificate-authority-data": authority()}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(PKI / f"{user}.crt"),
                    "client-key-data": _base64(PKI / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "stepset-cluster", "context": {"cluster": "stepset-cluster", "user": user}}],
    }
    path.touch(mode=0o600)
    # JSON is YAML.
    path.write_text(json.dumps(content, indent=1))
    return path


def _authority(name: str) -> None:
    _openssl("req", "-x509", *_new_key(name), "-subj", f"/CN=stepset-cluster-{name}", "-out", PKI / f"{name}.crt")


def _certificate(name: str, subject: str, alternative_names: str = "", authority: str = "ca") -> None:
    extensions = ["-addext", f"subjectAltName={alternative_names}"] if alternative_names else []
    _openssl(
        "req", "-x509", *_new_key(name), "-subj", subject, *extensions,
        "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
        "-CA", PKI / f"{authority}.crt", "-CAkey", PKI / f"{authority}.key", "-out", PKI / f"{name}.crt",
    )  # fmt: skip


def _new_key(name: str) -> list[str | Path]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", DAYS]
    return [*curve, "-keyout", PKI / f"{name}.key"]


def _openssl(*arguments: str | Path) -> None:
    process.run(["openssl", *arguments])


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
