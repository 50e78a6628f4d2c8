"""A worker node: containerd, kubelet and kube-proxy in the node's own network and mount namespace.

In its mount namespace the node has its own /run and /var, so that the programs' fixed paths (/var/lib/kubelet,
/run/containerd, /run/netns, /var/log/containers) are never the host's, and private copies of the sysctls that the
kubelet writes.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import network, pki, process
from .build import binary
from .layout import (
    CLUSTER_DOMAIN,
    CNI_PLUGINS,
    CONTROL_ADDRESS,
    PAUSE_IMAGE,
    PKI,
    POD_NET,
    STATE,
    Choice,
    Node,
)

# The kubelet sets these when it starts; see setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go of v1.36.
KERNEL_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
SOCKET = "/run/containerd/containerd.sock"


def prepare(node: Node) -> None:
    """Creates the node's directories and mounts; its namespaces must exist."""
    var, config = node.directory / "var", node.directory / "config"
    for directory in ("lib/containerd", "lib/kubelet", "lib/cni", f"lib/{STATE.name}", "log/pods", "cache", "tmp"):
        (var / directory).mkdir(parents=True)
    (var / "tmp").chmod(0o1777)
    (var / "run").symlink_to("/run")
    (config / "cni").mkdir(parents=True)
    (config / "sysctl").mkdir()
    script = ["mount -t tmpfs tmpfs /run", "mkdir -p /run/netns /run/lock"]
    for name, value in KERNEL_TUNABLES.items():
        copy = config / "sysctl" / name.replace("/", ".")
        copy.write_text(value + "\n")
        script.append(f"mount --bind {copy} /proc/sys/{name}")
    # The state directory has the same path in the new /var.
    script += [f"mount --rbind {STATE} {var}/lib/{STATE.name}", f"mount --rbind {var} /var"]
    process.run(["sh", "-ec", "\n".join(script)], inside=network.holder(node))


def start_containerd(node: Node) -> None:
    """Starts containerd; each pod gets a routed point-to-point link, so that bridge settings have no effect."""
    config = node.directory / "config"
    # 1.0.0 is the newest specification that Debian 12's containerd and plugins share.
    ipam = {"type": "host-local", "ranges": [[{"subnet": node.pod_net}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
    cni = {"cniVersion": "1.0.0", "name": f"pods-{node.name}", "plugins": plugins}
    (config / "cni" / "10-pods.conflist").write_text(json.dumps(cni))
    (config / "containerd.toml").write_text(_containerd_config(config / "cni"))
    command: list[str | Path] = ["containerd", "--config", config / "containerd.toml"]
    process.start(f"{node.name}-containerd", command, network.holder(node))


def load_images(node: Node, archive: Path) -> None:
    """Waits for containerd, and imports the cluster's images."""
    daemon, inside = f"{node.name}-containerd", network.holder(node)
    socket = Path(f"/proc/{process.pid_of(inside)}/root{SOCKET}")
    process.wait(f"containerd of {node.name}", socket.exists, timeout=90, needs=[daemon])
    process.run(["ctr", "-n", "k8s.io", "images", "import", archive], inside=inside)


def start_kubelet(node: Node, choice: Choice) -> None:
    """Starts the kubelet, for the first time or after `faults` killed it."""
    config = node.directory / "config" / "kubelet.json"
    config.write_text(json.dumps(_kubelet_config(node), indent=1))
    command: list[str | Path] = [
        binary(f"kubernetes-{choice.kubernetes}", "kubelet"),
        "--config", config, "--kubeconfig", pki.kubeconfig(node.name),
        "--hostname-override", node.name, "--node-ip", node.address,
        "--cert-dir", node.directory / "config" / "kubelet",
    ]  # fmt: skip
    process.start(f"{node.name}-kubelet", command, network.holder(node))


def start_kube_proxy(node: Node, choice: Choice) -> None:
    """Starts kube-proxy, so that service addresses (such as the API server's) work in pods."""
    content = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_NET,
        "hostnameOverride": node.name,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(pki.kubeconfig("kube-proxy"))},
        # Zero leaves the machine-wide limits unchanged.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    config = node.directory / "config" / "kube-proxy.json"
    config.write_text(json.dumps(content, indent=1))
    program = binary(f"kubernetes-{choice.kubernetes}", "kube-proxy")
    process.start(f"{node.name}-kube-proxy", [program, "--config", config], network.holder(node))


def _containerd_config(cni: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE (virtual machines, containers) runc cannot lower a score.
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{cni}"
"""


def _kubelet_config(node: Node) -> dict[str, object]:
    resolv = node.directory / "config" / "resolv.conf"
    resolv.write_text(f"nameserver {CONTROL_ADDRESS}\n")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "clusterDNS": [CONTROL_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(resolv),
        "volumePluginDir": str(node.directory / "config" / "volume-plugins"),
        # Low thresholds: the machine's memory and disk belong to others too.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        # With the controller-manager's grace period of 12 s, a lost node is Unknown after about 14 s. The kubelet
        # renews its lease every 2 s; it reports its status, a larger object that many clients watch, less often.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "4s",
        "nodeStatusReportFrequency": "60s",
        # A client that follows a log may miss lines during a rotation, which is a defect of the kubelet.
        "containerLogMaxSize": "512Mi",
        "serializeImagePulls": False,
        "maxPods": 250,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "eventRecordQPS": 0,
    }
