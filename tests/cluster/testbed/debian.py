"""Install Debian packages, whoever else does so meanwhile.

Called by `packages` and by tools/system_packages.py.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .layout import TestbedError

PATIENCE = 300.0
"""Seconds for which somebody else's apt-get is waited for."""

_LOCK = Path("/var/lib/dpkg")
"""A directory that is there already, so that no trace of ours stays; dpkg locks files in it, and another way."""
_POLICY = Path("/usr/sbin/policy-rc.d")
_PAUSE = 1.0


def may_install() -> bool:
    """Whether this is a Debian and we are root."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def missing(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that are not installed; all of them where there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        return list(packages)
    asked = ["dpkg-query", "--show", "--showformat", "${Package} ${Status}\n", *packages]
    said = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines()
    installed = {line.split()[0] for line in said if line.endswith(" ok installed")}
    return [package for package in packages if package not in installed]


def install(packages: Sequence[str]) -> None:
    """Install what is missing of `packages`, saying so in one line; none of their services is started.

    Raises:
        TestbedError: apt-get failed; its last lines.
    """
    with _one_at_a_time():
        wanted = missing(packages)
        if not wanted:
            return
        print(f"installing Debian packages: {' '.join(wanted)}", flush=True)
        # Its own way to say "do not start services": containerd's and PostgreSQL's packages would start daemons.
        ours = not _POLICY.exists()
        if ours:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)
        try:
            apt_get("update")
            apt_get("install", "--yes", "--no-install-recommends", *wanted)
        finally:
            if ours:
                _POLICY.unlink()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two clusters that come up on a fresh machine want the same packages."""
    directory = os.open(_LOCK, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def apt_get(*arguments: str) -> None:
    """Run apt-get.

    Raises:
        TestbedError: it failed; its last lines.
    """
    # Mirrors may be slow or out of order for a moment.
    options = ("Acquire::Retries=5", "Acquire::http::Timeout=60", f"DPkg::Lock::Timeout={PATIENCE:.0f}")
    command = ["apt-get", *(word for option in options for word in ("-o", option)), *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    until = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not done.returncode:
            return
        # apt-get waits for dpkg's lock by itself, but takes that of the packages' lists at once or fails.
        if "Could not get lock" not in done.stderr or time.monotonic() > until:
            raise TestbedError(f"apt-get {arguments[0]} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        time.sleep(_PAUSE)
