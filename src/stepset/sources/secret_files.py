"""Recognises files with credentials by the name or the content of the file.

Shipped code is stored in a ConfigMap, and many accounts can read a ConfigMap. Therefore stepset rejects files with
credentials. The functions of this module do not access the file system.
"""

from __future__ import annotations

import re

_DIRECTORIES = frozenset({".aws", ".azure", ".env", ".gcloud", ".gnupg", ".kube", ".ssh"})
_NAMES = frozenset(
    {
        ".boto",
        ".dockercfg",
        ".env",
        ".envrc",
        ".git-credentials",
        ".htpasswd",
        ".my.cnf",
        ".netrc",
        ".pgpass",
        ".pypirc",
        ".s3cfg",
        ".vault-token",
        "_netrc",
        "application_default_credentials.json",
        "id_dsa",
        "id_ecdsa",
        "id_ecdsa_sk",
        "id_ed25519",
        "id_ed25519_sk",
        "id_rsa",
        "kaggle.json",
        "kubeconfig",
    }
)
_SUFFIXES = (".jks", ".kdbx", ".key", ".keystore", ".kubeconfig", ".p12", ".pfx", ".ppk")
# The last two parts of the path of a file or directory that contains credentials.
_PLACES = (
    (".config", "gcloud"),
    (".docker", "config.json"),
    (".streamlit", "secrets.toml"),
    ("huggingface", "token"),
    (".huggingface", "token"),
)
# The suffixes of .env files that contain only the names of variables, such as .env.example.
_TEMPLATES = (".dist", ".example", ".sample", ".template")

_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:[\s\"',+]|\\[rn]){0,40}(?:[A-Za-z0-9+/]{24}|Proc-Type:|Version:|Comment:)"
)
# File name -> a pattern. The file contains credentials if its content matches the pattern.
_CONTENTS = {
    "credentials.json": re.compile(
        rb'"(?:access_token|client_secret|private_key|refresh_token|secret_access_key|secretAccessKey)"'
    ),
    ".npmrc": re.compile(rb"_(?:auth|authToken|password)\s*="),
    "pip.conf": re.compile(rb"://[^/\s:@]{1,200}:[^/\s@]{1,200}@"),
}


def secret_by_name(path: str) -> str | None:
    """Returns the beginning of a path, up to the file or directory whose name indicates credentials.

    Returns None if no name in the path indicates credentials. The names are separated by `/`.

    >>> secret_by_name("conf/.aws/config"), secret_by_name(".env.local"), secret_by_name("train.py")
    ('conf/.aws', '.env.local', None)
    """
    parts = path.split("/")
    names = [part.lower() for part in parts]
    for end in range(1, len(parts) + 1):
        is_file = end == len(parts)
        if (
            (not is_file and names[end - 1] in _DIRECTORIES)
            or tuple(names[max(0, end - 2) : end]) in _PLACES
            or (is_file and _is_secret_name(names[-1]))
        ):
            return "/".join(parts[:end])
    return None


def holds_secret(path: str, content: bytes) -> bool:
    """Returns whether a file contains credentials.

    The function finds private keys in every file. In files with the names in `_CONTENTS`, such as `.npmrc`, the
    function also finds other credentials.
    """
    name = path.rsplit("/", 1)[-1].lower()
    if name.endswith(".pem") and b"PRIVATE KEY-----" in content:
        return True
    credentials = _CONTENTS.get(name)
    return bool((credentials is not None and credentials.search(content)) or _PRIVATE_KEY.search(content))


def _is_secret_name(name: str) -> bool:
    if name.startswith(".env."):
        return not name.endswith(_TEMPLATES)
    return name in _NAMES or name.endswith(_SUFFIXES)
