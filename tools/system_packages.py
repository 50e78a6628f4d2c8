"""Install the Debian packages that some tests use. Without them those tests are skipped, and say so."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.testbed import debian  # the path comes first
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
    """Exit code 0 where nothing may be installed, too."""
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
