"""Installs Debian packages; waits while another process installs some."""

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

LOCK_TIMEOUT = 300.0
"""Seconds to wait for another process's apt-get."""

_LOCK = Path("/var/lib/dpkg")
"""An existing directory, so that no lock file is left behind. dpkg locks files in it, with another kind of lock."""
_POLICY = Path("/usr/sbin/policy-rc.d")
_PAUSE = 1.0


def may_install() -> bool:
    """Whether this machine has apt-get and the user is root."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def missing(packages: Sequence[str]) -> list[str]:
    """Returns the packages that are not installed; all of them without dpkg."""
    if shutil.which("dpkg-query") is None:
        return list(packages)
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Status}\n", *packages]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    installed = {line.split()[0] for line in lines if line.endswith(" ok installed")}
    return [package for package in packages if package not in installed]


def install(packages: Sequence[str]) -> None:
    """Installs the missing packages without starting their services, and prints one line about it.

    Raises:
        TestbedError: apt-get failed; the error contains its last lines.
    """
    with _one_at_a_time():
        wanted = missing(packages)
        if not wanted:
            return
        print(f"installing Debian packages: {' '.join(wanted)}", flush=True)
        # Exit code 101 of this file forbids to start services; containerd and PostgreSQL would start daemons.
        created = not _POLICY.exists()
        if created:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)
        try:
            apt_get("update")
            apt_get("install", "--yes", "--no-install-recommends", *wanted)
        finally:
            if created:
                _POLICY.unlink()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Serializes the installations of clusters that start at the same time."""
    directory = os.open(_LOCK, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def apt_get(*arguments: str) -> None:
    """Runs apt-get.

    Raises:
        TestbedError: apt-get failed; the error contains its last lines.
    """
    # Mirrors may be slow or fail temporarily.
    options = ("Acquire::Retries=5", "Acquire::http::Timeout=60", f"DPkg::Lock::Timeout={LOCK_TIMEOUT:.0f}")
    command = ["apt-get", *(word for option in options for word in ("-o", option)), *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not done.returncode:
            return
        # apt-get waits for dpkg's lock, but fails at once if another process has locked the package lists.
        if "Could not get lock" not in done.stderr or time.monotonic() > until:
            raise TestbedError(f"apt-get {arguments[0]} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        time.sleep(_PAUSE)
