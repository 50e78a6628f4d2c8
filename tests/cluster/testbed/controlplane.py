"""etcd, API server, controller-manager, scheduler and DNS, in the control plane's namespaces.

All except the API server and DNS listen on the loopback of that network namespace.
"""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

from . import pki, process
from .build import binary
from .layout import (
    API_PORT,
    CLUSTER_DOMAIN,
    CONFIG,
    CONTROL_ADDRESS,
    ETCD_PEER_PORT,
    ETCD_PORT,
    KUBECONFIG,
    PKI,
    POD_NET,
    SERVICE_NET,
    STATE,
    Choice,
)
from .network import CONTROL

ETCD_URL = f"http://127.0.0.1:{ETCD_PORT}"


def start_etcd() -> None:
    """Starts a new etcd with one member, without fsync: its data need not survive a crash of the machine."""
    data = STATE / "etcd"
    data.mkdir(mode=0o700)
    peer = f"http://127.0.0.1:{ETCD_PEER_PORT}"
    command: list[str | Path] = [
        binary("etcd", "etcd"), "--data-dir", data, "--unsafe-no-fsync", "--quota-backend-bytes=8589934592",
        f"--listen-client-urls={ETCD_URL}", f"--advertise-client-urls={ETCD_URL}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]  # fmt: skip
    process.start("etcd", command, inside=CONTROL)


def start_api_server(choice: Choice) -> None:
    """Starts the API server; `wait_api_ready` waits until it serves."""
    account = PKI / "service-account"
    command: list[str | Path] = [
        binary(f"kubernetes-{choice.kubernetes}", "kube-apiserver"),
        f"--etcd-servers={ETCD_URL}",
        f"--bind-address={CONTROL_ADDRESS}", f"--advertise-address={CONTROL_ADDRESS}", f"--secure-port={API_PORT}",
        f"--tls-cert-file={PKI / 'apiserver.crt'}", f"--tls-private-key-file={PKI / 'apiserver.key'}",
        f"--client-ca-file={PKI / 'ca.crt'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account}.pub", f"--service-account-signing-key-file={account}.key",
        f"--service-cluster-ip-range={SERVICE_NET}",
        "--authorization-mode=Node,RBAC", "--allow-privileged",
        f"--kubelet-client-certificate={PKI / 'admin.crt'}", f"--kubelet-client-key={PKI / 'admin.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        # For Kueue's aggregated API server, which trusts the identity headers that come with this certificate.
        f"--requestheader-client-ca-file={PKI / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={PKI / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={PKI / 'front-proxy-client.key'}",
    ]  # fmt: skip
    process.start("kube-apiserver", command, inside=CONTROL)


def wait_api_ready(timeout: float = 180.0) -> None:
    """Waits until the API server is ready.

    Raises:
        TestbedError: the API server died or was not ready in time.
    """
    process.wait("the API server", is_ready, timeout, needs=["etcd", "kube-apiserver"])


def is_ready() -> bool:
    """Whether /readyz answers 200 to a request from the host."""
    try:
        context = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        context.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
        connection = http.client.HTTPSConnection(CONTROL_ADDRESS, API_PORT, context=context, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def start_controller_manager(choice: Choice) -> None:
    """Starts the controller-manager, with a short grace period for nodes and rate limits for a thousand jobs."""
    own = pki.kubeconfig("kube-controller-manager")
    command: list[str | Path] = [
        binary(f"kubernetes-{choice.kubernetes}", "kube-controller-manager"),
        f"--kubeconfig={own}", "--bind-address=127.0.0.1", "--leader-elect=false",
        f"--root-ca-file={PKI / 'ca.crt'}", f"--service-account-private-key-file={PKI / 'service-account.key'}",
        "--use-service-account-credentials",
        f"--cluster-cidr={POD_NET}", "--allocate-node-cidrs=false",
        "--node-monitor-period=2s", "--node-monitor-grace-period=12s",
        "--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-job-syncs=20",
    ]  # fmt: skip
    process.start("kube-controller-manager", command, inside=CONTROL)


def start_scheduler(choice: Choice) -> None:
    """Starts the default scheduler."""
    own = pki.kubeconfig("kube-scheduler")
    command: list[str | Path] = [
        binary(f"kubernetes-{choice.kubernetes}", "kube-scheduler"),
        f"--kubeconfig={own}", "--bind-address=127.0.0.1", "--leader-elect=false",
        "--kube-api-qps=1000", "--kube-api-burst=2000",
    ]  # fmt: skip
    process.start("kube-scheduler", command, inside=CONTROL)


def start_dns() -> None:
    """Starts CoreDNS on the bridge address, which the kubelets set as every pod's name server.

    Names outside the cluster do not exist, because pods cannot reach other networks. The TTL of a record is one
    second, so that the name of a replaced pod resolves to the new address at once.
    """
    corefile = CONFIG / "Corefile"
    # Two blocks, because CoreDNS runs `template` before `kubernetes`, regardless of their order here.
    corefile.write_text(
        f"""{CLUSTER_DOMAIN} in-addr.arpa {{
    bind {CONTROL_ADDRESS}
    errors
    kubernetes {{
        kubeconfig {KUBECONFIG}
        ttl 1
    }}
}}
. {{
    bind {CONTROL_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    process.start("coredns", [binary("coredns", "coredns"), "-conf", corefile], inside=CONTROL)


def kubectl(choice: Choice, *arguments: str | Path, text: str = "") -> str:
    """Runs kubectl as the cluster's administrator and returns its output.

    Raises:
        TestbedError: kubectl failed; the error contains its message.
    """
    program = binary(f"kubernetes-{choice.kubernetes}", "kubectl")
    # The discovery cache would otherwise stay in the user's home.
    return process.run([program, "--kubeconfig", KUBECONFIG, "--cache-dir", STATE / "kubectl", *arguments], text=text)
