"""Command line of the test cluster: `python3 -m tests.cluster.testbed up|down|status|env|build`."""

from __future__ import annotations

import argparse
import signal
import sys

from . import build, faults, lifecycle, scale
from .layout import KUBECONFIG, NUMBER, NUMBER_VARIABLE, Choice, TestbedError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors are one line on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start the cluster (options: STEPSET_K8S, STEPSET_JOBSET, STEPSET_NODES)")
    commands.add_parser("down", help="stop it and remove all its files except the binary cache")
    commands.add_parser("status", help="list its processes; exit code 1 if one has stopped or none was started")
    commands.add_parser("env", help='print the variables for a shell: eval "$(... env)"')
    commands.add_parser("build", help="only build the binaries")
    kwok = commands.add_parser("kwok", help="add fake nodes run by kwok, for scale tests; --nodes 0 removes them")
    kwok.add_argument("--nodes", type=int, default=10)
    fault = commands.add_parser("fault", help="break a node, or repair it")
    fault.add_argument("kind", choices=sorted(faults.FAULTS))
    fault.add_argument("node", help="node-a, node-b, ...")
    options = parser.parse_args(arguments)
    # SIGTERM raises SystemExit, so `up` cleans up as after any error.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return _run(options)
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "up":
        choice = Choice.from_environment()
        seconds = lifecycle.up(choice)
        took = f"up in {seconds:.1f} s" if seconds else "already up"
        print(f"Kubernetes {choice.kubernetes}, JobSet {choice.jobset}, {choice.nodes} nodes: {took}")
        _print_exports()
    elif options.command == "down":
        lifecycle.down()
    elif options.command == "status":
        state = lifecycle.status()
        for name, text in state.items():
            print(f"{name:28} {text}")
        return 0 if state and all(text.startswith("running") for text in state.values()) else 1
    elif options.command == "env":
        choice = lifecycle.require_running()
        _print_exports()
        print(f"export PATH={build.binary(f'kubernetes-{choice.kubernetes}', 'kubectl').parent}:$PATH")
    elif options.command == "build":
        build.ensure(Choice.from_environment().components)
    elif options.command == "kwok":
        choice = lifecycle.require_running()
        if options.nodes:
            scale.add_nodes(choice, options.nodes)
        else:
            scale.remove_nodes(choice)
    else:
        choice = lifecycle.require_running()
        faults.FAULTS[options.kind](choice, faults.node_named(choice, options.node))
    return 0


def _print_exports() -> None:
    """Prints the variables with which a shell uses this cluster."""
    if NUMBER:
        print(f"export {NUMBER_VARIABLE}={NUMBER}")
    print(f"export KUBECONFIG={KUBECONFIG}")


if __name__ == "__main__":
    sys.exit(main())
