"""Returns advice for users whose job uses a service account that does not exist."""

from __future__ import annotations

import re

# The message of an API server (kubernetes v1.36 plugin/pkg/admission/serviceaccount/admission.go). The names in the
# message become part of a shell command. Therefore the expression matches only characters that are allowed in names of
# objects.
_NOT_FOUND = re.compile(r'error looking up service account ([a-z0-9-]+)/([a-z0-9.-]+): serviceaccount "\2" not found')


def creation(name: str, namespace: str) -> str:
    """Returns the command that creates a missing service account, as advice for the user.

    >>> creation("trainer", "ml")
    'create it: kubectl create serviceaccount trainer -n ml'
    """
    return f"create it: kubectl create serviceaccount {name} -n {namespace}"


def creation_after(message: str) -> str:
    """Returns the advice for an error message of an API server that has rejected a pod.

    If the message is not about a missing service account, the function returns "".

    >>> creation_after('error looking up service account ml/trainer: serviceaccount "trainer" not found')
    'create it: kubectl create serviceaccount trainer -n ml'
    """
    found = _NOT_FOUND.search(message)
    return creation(found[2], found[1]) if found else ""
