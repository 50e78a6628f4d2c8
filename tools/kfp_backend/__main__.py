"""The command line of the backend: `tools/kfp-backend build|up|status|down`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.cluster.testbed import packages
from tests.cluster.testbed.layout import KUBECONFIG, TestbedError

from . import build, lifecycle, services, sources
from .layout import ARGO_VERSION, KFP_VERSION, URL


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. An error is printed to stderr as one line, and the exit code is 1."""
    parser = argparse.ArgumentParser(
        prog="tools/kfp-backend",
        description=f"Kubeflow Pipelines {KFP_VERSION} with Argo Workflows {ARGO_VERSION} on the test cluster.",
        epilog=sources.HOW_TO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="build|up|status|down")
    commands.add_parser("build", help="only build the programs; they are kept in the test cluster's cache")
    commands.add_parser("up", help="start the backend, and the test cluster if it does not run (root, Debian)")
    commands.add_parser("status", help="list the backend's processes; exit code 1 if one of them does not run")
    commands.add_parser("down", help="remove the backend, and the cluster if `up` has started it")
    options = parser.parse_args(arguments)
    # The handler of SIGTERM raises SystemExit. Therefore `up` cleans up in the same way as after an error.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return _run(options.command)
    except TestbedError as error:
        print(f"kfp-backend: {error}", file=sys.stderr)
        return 1


def _run(command: str) -> int:
    if command == "build":
        print(build.ensure(sources.from_environment()))
    elif command == "up":
        packages.require_root()
        lifecycle.up(sources.from_environment())
        print(f"KFP {KFP_VERSION}: kfp.Client({URL!r})\nexport KUBECONFIG={KUBECONFIG}")
    elif command == "status":
        for name, text in services.state().items():
            print(f"{name:16} {text}")
        return 0 if lifecycle.is_running() else 1
    else:
        packages.require_root()
        lifecycle.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
