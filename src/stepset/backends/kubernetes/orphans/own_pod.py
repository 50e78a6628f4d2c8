"""Reads the token of the pod's service account to determine the pod in which this process runs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from stepset.backends.orphan_policy import OwnerPod
from stepset.unstructured import part, text

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def own_pod(token: Path = TOKEN) -> OwnerPod | None:
    """Returns the pod of this process. Returns None if the process does not run in a pod, or if the pod has no token.

    The token of a pod contains the pod's name and uid
    (kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin). Before stepset uses the name and the uid,
    stepset checks both values by reading the pod from the API server (submit/watchers.py).
    """
    try:
        payload = token.read_text("ascii").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (OSError, ValueError, LookupError):
        return None
    pod = part(claims, "kubernetes.io", "pod") if isinstance(claims, dict) else {}
    name, uid = text(pod, "name"), text(pod, "uid")
    return OwnerPod(name, uid) if name and uid else None
