"""Generates the ssh keys of an MPI run; this process keeps no copy.

Type and encoding of the keys are those of Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go): ECDSA
P-521, the private key as SEC 1 in PEM.
"""

from __future__ import annotations

from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.config_maps import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY


def with_keys(manifest: Manifest) -> dict[str, Any]:
    """Returns a rendered object; if it is the ssh Secret, with new keys in place of the placeholders."""
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
    keys = {SSH_PRIVATE_KEY: private.decode("ascii"), SSH_PUBLIC_KEY: f"{public.decode('ascii')}\n"}
    return {**manifest, "stringData": keys}
