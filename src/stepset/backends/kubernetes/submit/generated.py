"""Replaces placeholders in rendered objects by values that are generated for each run, such as ssh keys.

A command that only prints the rendered objects prints the placeholders.
"""

from __future__ import annotations

import secrets
from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.names import RENDEZVOUS_KEY, SSH_KNOWN_HOSTS, SSH_PRIVATE_KEY, SSH_PUBLIC_KEY, placeholder


def with_generated_values(manifest: Manifest) -> dict[str, Any]:
    """Returns a rendered object in which new ssh keys or a new rendezvous ID replace the placeholders."""
    if manifest["kind"] == "ConfigMap" and manifest.get("data", {}).get(RENDEZVOUS_KEY) == placeholder(RENDEZVOUS_KEY):
        return {**manifest, "data": {**manifest["data"], RENDEZVOUS_KEY: secrets.token_hex(16)}}
    return with_keys(manifest)


def with_keys(manifest: Manifest) -> dict[str, Any]:
    """Returns a copy of a rendered object. If the object is the ssh Secret, new keys replace the placeholders.

    The form of the keys (ECDSA with P-521, the private key as SEC 1 in PEM) is that of Kubeflow Trainer v2.3.0
    (pkg/runtime/framework/plugins/mpi/mpi.go).
    """
    if manifest["kind"] != "Secret" or manifest.get("type") != "kubernetes.io/ssh-auth":
        return dict(manifest)
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    line = f"{public.decode('ascii')}\n"
    # All ssh servers of the run use the run's key as their host key.
    keys = {SSH_PRIVATE_KEY: private.decode("ascii"), SSH_PUBLIC_KEY: line, SSH_KNOWN_HOSTS: f"* {line}"}
    return {**manifest, "stringData": keys}
