"""The machine's programs that the cluster uses, and the Debian packages that contain them."""

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
    """Checks that the user is root.

    Raises:
        TestbedError: the user is not root.
    """
    if os.geteuid() != 0:
        raise TestbedError("the cluster needs root (namespaces, cgroups, mounts); run as root, or set KUBECONFIG")


def ensure() -> None:
    """Installs missing programs with apt-get.

    Raises:
        TestbedError: a program is missing and apt-get cannot install it.
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
