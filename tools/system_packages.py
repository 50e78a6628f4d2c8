"""Installs the Debian packages that some tests need. If a package is missing, the tests that need it are skipped."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.testbed import debian  # after the change of sys.path
from tests.cluster.testbed.layout import TestbedError

PACKAGES = (
    "openmpi-bin",
    "libopenmpi-dev",
    "mpich",
    "libmpich-dev",
    "gcc",
    "openssh-server",
    "postgresql",
    "chromium",
)


def main() -> int:
    """Installs the missing packages and returns the exit code.

    The exit code is also 0 if this user is not permitted to install packages.
    """
    missing = debian.missing(PACKAGES)
    if not missing:
        return 0
    if not debian.may_install():
        print(f"some tests will be skipped: install {' '.join(missing)} to run them")
        return 0
    try:
        debian.install(missing)
    except TestbedError as error:
        print(f"system packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
