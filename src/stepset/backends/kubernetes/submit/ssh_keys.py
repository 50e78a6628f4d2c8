"""Generates the ssh keys of an MPI run. stepset keeps no copy of the keys.

The type of the keys is ECDSA P-521. The private key is encoded as SEC 1 in PEM. Kubeflow Trainer v2.3.0 uses the same
type and encoding (pkg/runtime/framework/plugins/mpi/mpi.go).
"""

from __future__ import annotations

from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.config_maps import SSH_KNOWN_HOSTS, SSH_PRIVATE_KEY, SSH_PUBLIC_KEY


def with_keys(manifest: Manifest) -> dict[str, Any]:
    """Returns a copy of a rendered object. If the object is the ssh Secret, new keys replace the placeholders."""
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
