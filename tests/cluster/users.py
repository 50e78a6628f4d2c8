"""Users of the test cluster, which only their certificates name."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.runs import kubeconfig_of
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import PKI


def kubeconfig_of_user(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    """A kubeconfig with a new certificate of a user.

    Args:
        cluster: the cluster of `make cluster`, whose authority's key is on this machine.
        name: the user's name, at most 64 characters.
        namespace: the context's namespace.
    """
    authority = x509.load_pem_x509_certificate((PKI / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((PKI / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=2))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    credentials = {
        "client-certificate-data": _base64(certificate.public_bytes(serialization.Encoding.PEM)),
        "client-key-data": _base64(private),
    }
    return {**kubeconfig_of(cluster, "", namespace), "users": [{"name": "test", "user": credentials}]}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
