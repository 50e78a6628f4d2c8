"""The programs the cluster takes from the machine, and the Debian packages that bring them.

Called first by `lifecycle.up`.
"""

from __future__ import annotations

import os
import shutil

from . import debian, process
from .layout import CNI_PLUGINS, TestbedError

# program -> Debian package.
PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    str(CNI_PLUGINS / "ptp"): "containernetworking-plugins",
    "nft": "nftables",
    "ip": "iproute2",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "mount": "mount",
}


def require_root() -> None:
    """Refuse anybody but root.

    Raises:
        TestbedError: not root.
    """
    if os.geteuid() != 0:
        raise TestbedError("the cluster needs root (namespaces, cgroups, mounts); run as root, or set KUBECONFIG")


def ensure() -> None:
    """Install what is missing with apt-get, saying so in one line.

    Raises:
        TestbedError: something is missing that apt-get cannot bring.
    """
    missing = sorted({package for program, package in PROGRAMS.items() if not _found(program)})
    if not missing:
        return
    if not debian.may_install():
        raise TestbedError(f"missing programs, and no apt-get to install them: {', '.join(missing)}")
    debian.install(missing)
    still = sorted(program for program in PROGRAMS if not _found(program))
    if still:
        raise TestbedError(f"still missing after installing {' '.join(missing)}: {', '.join(still)}")


def _found(program: str) -> bool:
    return shutil.which(program, path=process.environment()["PATH"]) is not None
