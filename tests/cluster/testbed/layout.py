"""The test cluster's paths, addresses, ports and versions.

A process uses one cluster, so these are constants. STEPSET_CLUSTER_NUMBER selects one of this machine's clusters;
`Choice.from_environment` reads the user's other options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class TestbedError(Exception):
    """The cluster cannot be started, used or stopped; the message states what to do."""

    # pytest would otherwise collect a class of this name.
    __test__ = False


NUMBER_VARIABLE = "STEPSET_CLUSTER_NUMBER"
MAX_CLUSTERS = 16


def number_from(environ: Mapping[str, str]) -> int:
    """Returns the number of the cluster on this machine: 0 to 15, 0 by default.

    Raises:
        TestbedError: STEPSET_CLUSTER_NUMBER has another value.
    """
    return int(_one_of(environ, NUMBER_VARIABLE, tuple(map(str, range(MAX_CLUSTERS)))))


def _one_of(environ: Mapping[str, str], variable: str, allowed: tuple[str, ...]) -> str:
    value = environ.get(variable, "") or allowed[0]
    if value not in allowed:
        raise TestbedError(f"{variable}={value!r} is not supported; use one of {', '.join(dict.fromkeys(allowed))}")
    return value


try:
    NUMBER = number_from(os.environ)
except TestbedError as error:
    sys.exit(f"testbed: {error}")
NAME = f"stepset-cluster-{NUMBER}" if NUMBER else "stepset-cluster"

# All files that `up` writes on the host, apart from the binary cache. `down` deletes the directory.
STATE = Path("/var/lib") / NAME
LOGS = STATE / "log"
PIDS = STATE / "pid"
PKI = STATE / "pki"
CONFIG = STATE / "config"
KUBECONFIG = STATE / "admin.kubeconfig"
CHOICE_FILE = STATE / "choice.json"
STARTED_FILE = STATE / "started"
STARTED_BY_FILE = STATE / "started-by"
"""A digest of the code that started the cluster."""
BORROWED_FILE = STATE / "borrowed"  # exists if `borrow.borrowed` started the cluster and will stop it
LOCK = Path("/run/lock") / f"{NAME}.lock"

GO_MODULES = Path(__file__).resolve().parent.parent / "go"

# The only link on the host: one end of a veth pair whose other end is in the control plane's network namespace.
HOST_LINK = f"stepset{NUMBER}"
BRIDGE = "br0"
CLUSTER_NET_BITS = 24
HOST_ADDRESS = f"10.98.{NUMBER}.254"
CONTROL_ADDRESS = f"10.98.{NUMBER}.1"
SERVICE_NET = "10.97.0.0/16"
SERVICE_API_ADDRESS = "10.97.0.1"
POD_NET = f"10.245.{16 * NUMBER}.0/20"
CLUSTER_DOMAIN = "cluster.local"

API_PORT = 6443
API_URL = f"https://{CONTROL_ADDRESS}:{API_PORT}"
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380

PAUSE_IMAGE = "stepset.test/pause:1"
HOST_IMAGE = "stepset.test/host:1"

CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True)
class Node:
    """A worker node: a network and a mount namespace on this machine."""

    index: int

    @property
    def name(self) -> str:
        return "node-" + "abcdefgh"[self.index]

    @property
    def address(self) -> str:
        return f"10.98.{NUMBER}.{11 + self.index}"

    @property
    def pod_net(self) -> str:
        return f"10.245.{16 * NUMBER + 1 + self.index}.0/24"

    @property
    def directory(self) -> Path:
        return STATE / self.name

    @property
    def cgroup(self) -> str:
        """The kubelet's cgroupRoot; all containers of the node are below it."""
        return f"{NAME}/{self.name}"


KUBERNETES = ("1.36", "1.35")
JOBSET = ("0.12", "0.11")
MAX_NODES = 8


@dataclass(frozen=True)
class Choice:
    """The user's options for the cluster.

    Args:
        kubernetes: minor version, one of `KUBERNETES`.
        jobset: minor version of the JobSet controller, one of `JOBSET`.
        nodes: number of worker nodes, 1 to 8.
        kueue: whether Kueue runs.
    """

    kubernetes: str = KUBERNETES[0]
    jobset: str = JOBSET[0]
    nodes: int = 2
    kueue: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Choice:
        """Read STEPSET_K8S, STEPSET_JOBSET, STEPSET_NODES and STEPSET_KUEUE.

        Raises:
            TestbedError: a value is not supported.
        """
        return cls(
            kubernetes=_one_of(environ, "STEPSET_K8S", KUBERNETES),
            jobset=_one_of(environ, "STEPSET_JOBSET", JOBSET),
            nodes=int(_one_of(environ, "STEPSET_NODES", ("2", *(str(n) for n in range(1, MAX_NODES + 1))))),
            kueue=_one_of(environ, "STEPSET_KUEUE", ("1", "0")) == "1",
        )

    @property
    def worker_nodes(self) -> tuple[Node, ...]:
        return tuple(Node(index) for index in range(self.nodes))

    @property
    def components(self) -> tuple[str, ...]:
        """The components of this choice; kubernetes first, because its kubectl renders the others' manifests.

        The tests that start kwok or Volcano build these when they need them.
        """
        kueue = ("kueue",) if self.kueue else ()
        fixed = (f"kubernetes-{self.kubernetes}", "etcd", "pause", "coredns", f"jobset-{self.jobset}", "trainer")
        return (*fixed, *kueue)
