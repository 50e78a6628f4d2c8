"""Reports all permissions that the step's account lacks, before anything is created.

python3 -m stepset_kfp.step.preflight [NAMESPACE]     # in a pod, or with a kubeconfig
"""

from __future__ import annotations

import sys

from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.submit.access_review import missing_of, problems, required_by
from stepset.errors import InfrastructureError, StepsetError


def preflight(connection: Connection, namespace: str, grant: Grant) -> None:
    """Raises InfrastructureError with a line for each resource on which the account lacks verbs that a run needs."""
    client = connection.client
    missing = connection.call(missing_of, client, required_by(grant), namespace)
    if missing:
        raise InfrastructureError("\n".join(connection.call(problems, client, missing, namespace, grant)))


def main() -> int:
    """Runs the program; returns its exit code."""
    try:
        with connect() as connection:
            namespace = sys.argv[1] if len(sys.argv) > 1 else connection.namespace
            preflight(connection, namespace, Grant("kfp", gang="kueue", mpi=True))
    except StepsetError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"the account has all permissions that a run needs in namespace {namespace}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
