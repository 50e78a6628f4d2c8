"""The programs the cluster takes from the machine, and the Debian packages that bring them.

Called first by `lifecycle.up`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import process
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
    if shutil.which("apt-get") is None:
        raise TestbedError(f"missing programs, and no apt-get to install them: {', '.join(missing)}")
    print(f"installing Debian packages: {' '.join(missing)}", flush=True)
    _apt("update")
    _apt("install", "--yes", "--no-install-recommends", *missing)
    still = sorted(program for program in PROGRAMS if not _found(program))
    if still:
        raise TestbedError(f"still missing after installing {' '.join(missing)}: {', '.join(still)}")


def _found(program: str) -> bool:
    return shutil.which(program, path=process.environment()["PATH"]) is not None


def _apt(*arguments: str) -> None:
    # policy-rc.d is apt's own way to say "do not start services": Debian's containerd package would start a daemon.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # Mirrors may be slow or out of order for a moment, and others may be installing something.
        patience = ("Acquire::Retries=5", "Acquire::http::Timeout=60", "DPkg::Lock::Timeout=300")
        words = ["apt-get", *(word for option in patience for word in ("-o", option)), *arguments]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    finally:
        if ours:
            policy.unlink()
    if done.returncode:
        raise TestbedError(f"apt-get {arguments[0]} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
