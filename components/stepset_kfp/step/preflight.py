"""Checks whether the account of the step has all permissions that a run needs, and reports the missing permissions.

A step performs this check before the step creates any object. To run only the check, in a pod or with a kubeconfig:

python3 -m stepset_kfp.step.preflight [NAMESPACE]
"""

from __future__ import annotations

import sys

from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.submit.access_review import missing_of, problems, required_by
from stepset.errors import InfrastructureError, StepsetError


def preflight(connection: Connection, namespace: str, grant: Grant) -> None:
    """Raises InfrastructureError if the account lacks a permission that a run needs.

    The message has a line for each resource with missing verbs, or one line if all permissions are missing. A
    permission that only diagnoses need may be missing. The run reports such a permission in a note.
    """
    client = connection.client
    missing = connection.call(missing_of, client, required_by(grant), namespace)
    found, notes = connection.call(problems, client, missing, namespace, grant)
    if found:
        raise InfrastructureError("\n".join([*found, *notes]))


def main() -> int:
    """Checks the permissions, prints the result, and returns the exit code of the program."""
    try:
        with connect(interface="kfp") as connection:
            namespace = sys.argv[1] if len(sys.argv) > 1 else connection.namespace
            preflight(connection, namespace, Grant("kfp", gang="kueue", mpi=True))
    except StepsetError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"the account has all permissions that a run needs in namespace {namespace}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
