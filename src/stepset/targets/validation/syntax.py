"""Checks the syntax of names, labels and keys in Kubernetes.

Source: kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stepset.safe_names import LABEL_LIMIT
from stepset.spec.scalars import shortened
from stepset.targets.metadata import PREFIX
from stepset.targets.workload_kinds import WORKLOAD_KINDS

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_SUBDOMAIN_LIMIT = 253
_RESERVED_KEYS = frozenset(key for kind in WORKLOAD_KINDS.values() for key in kind.reserved_keys)
_RESERVED_PREFIXES = (PREFIX, *(key for key in _RESERVED_KEYS if key.endswith("/")))


def name_problem(field: str, name: str) -> str | None:
    """Returns a problem if an object's name is not a DNS-1123 subdomain. Otherwise, returns None."""
    if len(name) > _SUBDOMAIN_LIMIT or not _SUBDOMAIN.fullmatch(name):
        return f"{field}: {name!r} is not a name Kubernetes accepts; use lower-case letters, digits, '-' and '.'"
    return None


def namespace_problem(name: str, field: str = "namespace") -> str | None:
    """Returns a problem if the name of a namespace is not a DNS-1123 label. Otherwise, returns None."""
    if len(name) > LABEL_LIMIT or "." in name or not _SUBDOMAIN.fullmatch(name):
        return (
            f"{field}: {name!r} is not a name Kubernetes accepts; use lower-case letters, digits and '-', at most"
            f" {LABEL_LIMIT} characters"
        )
    return None


def label_problems(field: str, labels: Mapping[str, str], *, values: bool = True) -> Iterator[str]:
    """Yields the problems of labels or annotations.

    Args:
        values: whether to check the values. The values of annotations can be any string.
    """
    for key, value in labels.items():
        if not is_label_key(key):
            yield (
                f"{field}: {key!r} is not a label key; use letters, digits, '-', '_' and '.', at most {LABEL_LIMIT}"
                " characters, after an optional prefix such as example.com/"
            )
            continue
        if _is_reserved(key):
            yield f"{field}.{key}: is reserved, because stepset or a controller sets it; choose another key"
        if values and not is_label_value(value):
            yield (
                f"{field}.{key}: {shortened(value)!r} is not a label value; use letters, digits, '-', '_' and '.', at"
                f" most {LABEL_LIMIT} characters"
            )


def _is_reserved(key: str) -> bool:
    """Returns whether stepset or a controller sets labels or annotations with this key."""
    return key in _RESERVED_KEYS or key.startswith(_RESERVED_PREFIXES)


def is_config_key(key: str) -> bool:
    """Returns whether an entry of a ConfigMap or Secret may have this key."""
    return len(key) <= _SUBDOMAIN_LIMIT and bool(_CONFIG_KEY.fullmatch(key)) and key != "." and not key.startswith("..")


def is_label_key(key: str) -> bool:
    """Returns whether a label or annotation may have this key. A key consists of an optional prefix and a name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not _SUBDOMAIN.fullmatch(prefix) or len(prefix) > _SUBDOMAIN_LIMIT):
        return False
    return len(name) <= LABEL_LIMIT and bool(_LABEL_NAME.fullmatch(name))


def is_label_value(value: str) -> bool:
    """Returns whether a label, a taint or a node selector may have this value."""
    return not value or (len(value) <= LABEL_LIMIT and bool(_LABEL_NAME.fullmatch(value)))
