"""Derives names and values of labels from texts. The results are valid in Kubernetes for every text.

The texts are names of DAGs, tasks, functions, scripts and accounts, which may contain any character. If `label_value`
or `path_segment` changes a text, the result contains a hash of the text, so different texts get different results.
"""

from __future__ import annotations

import hashlib
import re

LABEL_LIMIT = 63
_OTHER_THAN_LABEL_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")
_LABEL_HASH = 9
_LABEL_EDGES = "_.-"
_UNSAFE_IN_PATHS = re.compile(r"[/%:\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_SEGMENT = 150


def slug(text: str, limit: int = 40) -> str:
    """Converts a text to a DNS-1035 label of at most `limit` characters. The result is never empty.

    If the text has letters or digits, but no ASCII letters or digits, the result contains a hash of the text.

    >>> slug("My Train.py"), slug("3d_unet"), slug("_")
    ('my-train-py', 'job-3d-unet', 'job')
    >>> slug("训练"), slug("模型")
    ('job-a29c0de1', 'job-c98e118e')
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not words[:1].isalpha():
        hashed = _sha256(text)[:8] if not words and any(map(str.isalnum, text)) else ""
        words = f"job-{words or hashed}".rstrip("-")
    return words[:limit].rstrip("-")


def label_value(text: str) -> str:
    """Converts a text to the value of a label.

    If characters have to be removed, or if the text is too long, the result ends with a hash of the text.
    KubernetesPodOperator returns the same value (`make_safe_label_value` in pod_generator.py of cncf.kubernetes), so
    the same label selectors find the pods of both operators. There is one exception: for a text without an ASCII letter
    or digit, the value of KubernetesPodOperator starts with a hyphen and is not valid. For such a text, this function
    returns the hash.

    >>> label_value("nightly"), label_value("a b"), label_value("训练")
    ('nightly', 'ab-0cc9cd4dd', 'd8b16075c')
    """
    safe = _OTHER_THAN_LABEL_CHARACTERS.sub("", text).strip(_LABEL_EDGES)
    if safe == text and len(safe) <= LABEL_LIMIT:
        return text
    digest = hashlib.md5(_encoded(text), usedforsecurity=False).hexdigest()[:_LABEL_HASH]
    return "-".join(filter(None, (safe[: LABEL_LIMIT - _LABEL_HASH - 1], digest)))


def path_segment(text: str) -> str:
    """Converts a text to a part of the name of an object of RBAC, whose name may contain most characters.

    Characters that are not allowed, and colons, which separate the parts of such a name, are replaced by `_`. Then the
    result ends with a hash of the text.

    >>> path_segment("jane@example.com"), path_segment("a:b")
    ('jane@example.com', 'a_b-6783a31eab')
    """
    safe = _UNSAFE_IN_PATHS.sub("_", text)
    return text if safe == text else f"{safe[:_LONGEST_SEGMENT]}-{_sha256(text)[:10]}"


def _sha256(text: str) -> str:
    return hashlib.sha256(_encoded(text)).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
