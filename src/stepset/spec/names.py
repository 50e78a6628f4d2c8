"""Rules of Kubernetes and JobSet for names, and the maximum length of a job's name."""

from __future__ import annotations

import re
from collections.abc import Iterable

DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
LABEL_LIMIT = 63
_POD_SUFFIX = 6  # "-" and the five characters Kubernetes appends to a pod's name


def check_dns_1035(name: str) -> None:
    """Raises ValueError unless `name` is a DNS-1035 label (RFC 1035; required by JobSet and Services)."""
    if not DNS_1035.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
            f" (for example {slug(name)!r})"
        )
    if len(name) > LABEL_LIMIT:
        raise ValueError(f"{name!r} has {len(name)} characters; at most {LABEL_LIMIT} are allowed")


def jobset_name_budget(groups: Iterable[tuple[str, int]]) -> int:
    """Returns the maximum length of a JobSet's name.

    Pods are called `<jobset>-<group>-0-<index>-<5 random>`, and the name must be a DNS label (kubernetes-sigs/jobset
    v0.12.0 pkg/webhooks/jobset_webhook.go:236-258).

    Args:
        groups: (replicated job's name, number of its pods), one for each replicated job.

    >>> jobset_name_budget([("node", 2)]), jobset_name_budget([("node", 100)]), jobset_name_budget([("launcher", 1)])
    (48, 47, 44)
    """
    return min(LABEL_LIMIT - len(f"-{name}-0-{count - 1}") - _POD_SUFFIX for name, count in groups)


def slug(text: str, limit: int = 40) -> str:
    """A DNS-1035 label made of `text`, never empty.

    >>> slug("My Train.py"), slug("3d_unet"), slug("_")
    ('my-train-py', 'job-3d-unet', 'job')
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not words[:1].isalpha():
        words = f"job-{words}".rstrip("-")
    return words[:limit].rstrip("-")
