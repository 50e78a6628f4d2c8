"""Reports all permissions that the step's account lacks, before anything is created.

python3 -m stepset_kfp.step.preflight [NAMESPACE]     # in a pod, or with a kubeconfig
"""

from __future__ import annotations

import sys

from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.submit.access_review import missing_of, permissions, problems
from stepset.errors import InfrastructureError, StepsetError
from stepset.targets.rbac import rules


def preflight(
    connection: Connection, namespace: str, target: str = "jobset", gang: str = "none", secrets: bool = False
) -> None:
    """Raises InfrastructureError with a line for each resource on which the account lacks verbs that a run needs.

    `gang` is none, kueue, coscheduling or volcano; `secrets`: the run creates a Secret, as MPI does.
    """
    needed = [each for each in permissions(rules(target, gang)) if secrets or each.resource != "secrets"]
    client = connection.client
    missing = connection.call(missing_of, client, needed, namespace)
    if missing:
        raise InfrastructureError("\n".join(connection.call(problems, client, missing, namespace, target, gang, "kfp")))


def main() -> int:
    """Runs the program; returns its exit code."""
    try:
        with connect() as connection:
            namespace = sys.argv[1] if len(sys.argv) > 1 else connection.namespace
            preflight(connection, namespace, gang="kueue", secrets=True)
    except StepsetError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"everything is allowed in namespace {namespace}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
