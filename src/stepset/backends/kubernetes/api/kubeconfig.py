"""Loads credentials from a kubeconfig, or from the service account of the pod that this process runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from stepset.errors import BadInputError
from stepset.unstructured import one_line

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_into(configuration: Any, kubeconfig: str | None, context: str | None) -> str:
    """Fills in a kubernetes.client.Configuration; returns the default namespace. Raises as `load_config` does."""
    from kubernetes import config

    if not (files := _files(kubeconfig, context)):
        config.load_incluster_config(client_configuration=configuration)
        return (_SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip() or "default"
    where = os.pathsep.join(files)
    try:
        config.load_kube_config(where, context, client_configuration=configuration)
        contexts, current = config.list_kube_config_contexts(where)
    except config.ConfigException as error:
        raise _unusable(where, context, str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError):
        # The file is YAML but not a kubeconfig; the cause may show its content.
        raise _unusable(where, context, "it is not a kubeconfig") from None
    except OSError as error:  # of a certificate file
        raise BadInputError(f"kubeconfig {where}: {error.filename}: {error.strerror}; check the path") from error
    chosen = next((each for each in contexts if each["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")


def _unusable(where: str, context: str | None, reason: str) -> BadInputError:
    if context is not None and context in reason:
        return BadInputError(
            f"--context: {context!r} is not in kubeconfig {where}; `kubectl config get-contexts` lists them"
        )
    text = one_line(reason, 200).rstrip(".")
    return BadInputError(f"kubeconfig {where}: cannot be used: {text}; check the file and its current context")


def _files(kubeconfig: str | None, context: str | None) -> list[str]:
    """Returns the kubeconfig files to merge, in order; an empty list selects the pod's service account."""
    named = [kubeconfig] if kubeconfig else [f for f in os.environ.get("KUBECONFIG", "").split(os.pathsep) if f]
    files = named or [str(Path("~/.kube/config").expanduser())]
    existing = [each for each in files if kubeconfig or _exists(Path(each))]
    if existing:
        for each in existing:
            _check(each)
        return existing
    if named:
        raise BadInputError(f"kubeconfig {os.pathsep.join(named)}: no such file; check KUBECONFIG")
    if "KUBERNETES_SERVICE_HOST" in os.environ and (_SERVICE_ACCOUNT / "token").exists():
        if context is not None:
            raise BadInputError(
                "--context: a pod's service account has no contexts; give --kubeconfig too, or omit --context"
            )
        return []
    raise BadInputError("no kubeconfig found; give --kubeconfig FILE, or set KUBECONFIG")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # `_check` reports why the file cannot be read
    return True


def _check(file: str) -> None:
    """Raises if a file cannot be read as YAML; the error never shows the file's content."""
    try:
        yaml.safe_load(Path(file).read_text("utf-8"))
    except FileNotFoundError as error:
        raise BadInputError(f"kubeconfig {file}: no such file; check the path") from error
    except OSError as error:
        raise BadInputError(
            f"kubeconfig {file}: cannot be read: {error.strerror}; check the path and its permissions"
        ) from error
    except UnicodeDecodeError:
        raise BadInputError(f"kubeconfig {file}: cannot be read: it is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise BadInputError(f"kubeconfig {file}: {line}not readable as YAML; fix the file") from None
