"""The command `stepset doctor`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import Output
from stepset.targets.workload_kinds import TARGET_LIST

if TYPE_CHECKING:
    from stepset.cli.doctor.findings import Finding


@takes_backend
def doctor(
    target: Annotated[str, typer.Option(metavar="KIND", help=f"On a cluster: {TARGET_LIST}.")] = "jobset",
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="On a cluster: also check this LocalQueue of Kueue.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="On a cluster: check only the permissions to read runs.")
    ] = False,
    output: Output = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Check this machine and, with --backend kubernetes, a cluster.

    \b
    Examples:
      stepset doctor
      stepset doctor --backend kubernetes --namespace ml --target trainjob
      stepset doctor --backend kubernetes --namespace ml --queue team-a
      stepset doctor --backend kubernetes --namespace ml --read-only

    The command prints the versions of stepset and Python, and for local runs the versions of the frameworks. On this
    machine, the command checks the directory of the runs, shared memory, GPUs and ports. On a cluster, the command
    checks the connection, permissions, controllers and GPUs. With --queue, the command also checks a LocalQueue of
    Kueue, the ClusterQueue of the LocalQueue, and the permission to read Workloads. With --read-only, the command
    checks only the permissions that stepset rbac --read-only grants. The command prints a fix for each problem. The
    exit code is 1 if there is a problem, and 3 if the cluster cannot be reached.
    """
    from stepset.cli.doctor.findings import exit_code, no_connection
    from stepset.cli.doctor.machine import machine_findings
    from stepset.cli.output.documents import document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import write_out
    from stepset.errors import BadInputError
    from stepset.targets.request import check_target

    check_target(target)
    backend_args.check()
    found = list(machine_findings(os.environ, trains=backend_args.backend == "local"))
    if backend_args.backend == "kubernetes":
        try:
            from stepset.cli.doctor.cluster import cluster_findings
        except BadInputError as error:  # a package of the extra `kubernetes` is missing
            found.append(no_connection("problem", error))
        else:
            cluster = (backend_args.kubeconfig, backend_args.context, backend_args.namespace)
            found += cluster_findings(*cluster, target, queue, read_only=read_only)
    elif queue is not None:
        raise BadInputError("--queue: a local run has no queue; add --backend kubernetes")
    elif read_only:
        raise BadInputError("--read-only: a local run needs no permissions; add --backend kubernetes")
    if output == "json":
        write_out(as_json(document("Diagnosis", {"items": found})))
    else:
        write_out(_page(found))
    return int(exit_code(found))


def _page(found: Sequence[Finding]) -> str:
    """Returns a line `state: check: text` for each finding. If a finding has a fix, the next line contains the fix."""
    from stepset.cli.output.tables import Line, rendered

    styles = {"ok": "green", "note": "yellow", "problem": "red", "unreachable": "red"}
    parts = []
    for each in found:
        parts.append(Line(f"{each['state']}: {each['check']}: {each['text']}", styles[each["state"]]))
        parts += [Line(f"  fix: {each['fix']}")] if each["fix"] else []
    return rendered(*parts)
