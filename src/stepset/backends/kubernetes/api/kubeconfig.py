"""Loads credentials from a kubeconfig, or from the service account of the pod in which this process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import yaml

from stepset.backends.kubernetes.api.plugins import limit_plugins, logged_errors
from stepset.backends.kubernetes.api.replies import UnauthorizedError
from stepset.backends.option_names import Interface, option
from stepset.errors import BadInputError
from stepset.regular_files import open_regular
from stepset.spec.yamlfile import check_limits
from stepset.unstructured import one_line

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_KUBECONFIG, _MAX_CREDENTIAL = 16 << 20, 1 << 20
"""The maximum number of bytes of a kubeconfig, and of a file with a certificate, a key or a token."""
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_DATA = {"tokenFile": "token"}
"""The fields that replace a file. For the other files, `-data` is appended to the name of the field."""
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def load_into(configuration: Any, kubeconfig: str | None, context: str | None, interface: Interface) -> str:
    """Fills in `configuration`, a kubernetes.client.Configuration. Returns the default namespace.

    `load_config` describes the other arguments and the errors.
    """
    from kubernetes import config

    contents = _contents(kubeconfig, context, interface)
    if not contents:
        return _load_service_account(configuration)
    where = os.pathsep.join(contents)
    limit_plugins()
    try:
        check_files(contents, context)
        with logged_errors() as errors:
            config.load_kube_config(where, context, client_configuration=configuration)
        if errors and not configuration.api_key and not configuration.cert_file:
            raise plugin_failed(str(configuration.host), errors[-1])
        contexts, current = config.list_kube_config_contexts(where)
        chosen = next((each for each in contexts if each["name"] == context), current)
        check_impersonation(contents, context)
        return str(chosen["context"].get("namespace") or "default")
    except config.ConfigException as error:
        # After " in ", the message may contain an entry of the file with its credentials.
        reason = str(error).partition(" in ")[0] if "{" in str(error) else str(error)
        raise _unusable(where, context, reason, interface) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        # The file is YAML, but not a kubeconfig. The cause is omitted, because it may show the file's content.
        raise _unusable(where, context, "it is not a kubeconfig", interface) from None
    except OSError as error:  # a certificate file cannot be read
        raise BadInputError(f"kubeconfig {where}: {error.filename}: {error.strerror}; check the path") from error


def _load_service_account(configuration: Any) -> str:
    from kubernetes import config

    for name in ("token", "ca.crt", "namespace"):
        _check_file(f"service account: {name}", _SERVICE_ACCOUNT / name)
    try:
        config.load_incluster_config(client_configuration=configuration)
        return (_SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip() or "default"
    except (config.ConfigException, OSError, ValueError) as error:
        reason = one_line(str(error), 200).rstrip(".")
        raise BadInputError(
            f"service account of this pod: cannot be used: {reason}; check {_SERVICE_ACCOUNT}"
        ) from error


def plugin_failed(server: str, reason: str) -> UnauthorizedError:
    """Returns the error for a credential plugin that provides no credentials."""
    return UnauthorizedError(
        f"server {server}: the credential plugin of the kubeconfig failed: {one_line(reason, 300)}; log in again, or"
        " check the user of the kubeconfig's context"
    )


def check_files(contents: Mapping[str, Any], context: str | None) -> None:
    """Raises BadInputError if a file that a context names is not a regular file, or is too large.

    `check_impersonation` describes the arguments. The kubernetes package would wait for the writer of a pipe, and would
    read a device without end.
    """
    current = [each["current-context"] for each in contents.values() if "current-context" in each]
    _, of_context = _first(contents, "contexts", context or (current[-1] if current else None))
    chosen = of_context.get("context") or {}
    for kind, section in (("cluster", "clusters"), ("user", "users")):
        file, found = _first(contents, section, chosen.get(kind))
        entry = found.get(kind) or {}
        for field in _FILES:
            if entry.get(field) and not entry.get(_DATA.get(field, f"{field}-data")):
                _check_file(f"kubeconfig {file}: {field}", Path(file).expanduser().parent / entry[field])


def _check_file(where: str, path: Path) -> None:
    try:
        with open_regular(path, follow_links=True) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise BadInputError(f"{where}: {path}: {error.strerror}; check the path and its permissions") from error
    if size > _MAX_CREDENTIAL:
        raise BadInputError(f"{where}: {path}: has more than {_MAX_CREDENTIAL} bytes; check the path")


def _unusable(where: str, context: str | None, reason: str, interface: Interface) -> BadInputError:
    if context is not None and context in reason:
        return BadInputError(
            f"{option(interface, 'context')}: {context!r} is not in kubeconfig {where}; `kubectl config get-contexts`"
            " lists them"
        )
    text = one_line(reason, 200).rstrip(".")
    return BadInputError(f"kubeconfig {where}: cannot be used: {text}; check the file and its current context")


def check_impersonation(contents: Mapping[str, Any], context: str | None) -> None:
    """Raises BadInputError if the user of a context impersonates another user.

    The kubernetes package ignores the fields for impersonation. Therefore requests would use the permissions of the
    original user, not of the impersonated user.

    Args:
        contents: a mapping from the path of each kubeconfig to the content of the kubeconfig. The order is the order in
            which the kubernetes package merges kubeconfigs.
        context: the name of a context; default: the current context.
    """
    current = [each["current-context"] for each in contents.values() if "current-context" in each]
    chosen = context or current[-1]
    # If several contexts or users have the same name, the first is used. If several files state a current context, the
    # current context in the last file is used.
    _, of_context = _first(contents, "contexts", chosen)
    name: Any = (of_context.get("context") or {}).get("user")
    file, user = _first(contents, "users", name)
    fields = user.get("user") or {}
    for each in _IMPERSONATION if name else ():
        if fields.get(each) not in (None, "", [], {}):
            raise _impersonation(file, chosen, name, each)


def _first(contents: Mapping[str, Any], field: str, name: object) -> tuple[str, Mapping[str, Any]]:
    """Returns the file and the content of the first entry that has the given name.

    Returns ("", {}) if no entry has this name.
    """
    found = ((file, each) for file, content in contents.items() for each in content.get(field) or ())
    return next(((file, each) for file, each in found if each["name"] == name), ("", {}))


def _impersonation(file: str, context: str, user: str, field: str) -> BadInputError:
    return BadInputError(
        f"kubeconfig {file}: context {context!r}: user {user!r} has the field {field!r}, which stepset does not"
        " support; use a context whose user has credentials of its own, or run `kubectl proxy --as USER` and use a"
        " kubeconfig whose server is the proxy's address"
    )


def _contents(kubeconfig: str | None, context: str | None, interface: Interface) -> dict[str, Any]:
    """Returns a mapping from each kubeconfig to its content, in the order in which kubeconfigs are merged.

    An empty mapping means that the service account of the pod is used.
    """
    named = [kubeconfig] if kubeconfig else [f for f in os.environ.get("KUBECONFIG", "").split(os.pathsep) if f]
    files = named or [str(Path("~/.kube/config").expanduser())]
    existing = [each for each in files if kubeconfig or _exists(Path(each))]
    if existing:
        return {each: read_kubeconfig(each) for each in existing}
    if named:
        raise BadInputError(f"kubeconfig {os.pathsep.join(named)}: no such file; check KUBECONFIG")
    if "KUBERNETES_SERVICE_HOST" in os.environ and (_SERVICE_ACCOUNT / "token").exists():
        if context is not None:
            given = option(interface, "context")
            raise BadInputError(
                f"{given}: a pod's service account has no contexts; give {option(interface, 'kubeconfig')} too, or omit"
                f" {given}"
            )
        return {}
    # KFP's steps have no option for a kubeconfig.
    give = "" if interface == "kfp" else f"give {option(interface, 'kubeconfig', 'FILE')}, or "
    raise BadInputError(f"no kubeconfig found; {give}set KUBECONFIG")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # `read_kubeconfig` reports why the file cannot be read
    return True


def read_kubeconfig(file: str) -> Any:
    """Returns the content of a YAML file.

    Raises BadInputError if the file cannot be read as YAML, or if the file exceeds the limits of `check_limits`. The
    error never shows the file's content. The kubernetes package later reads the same file without limits.
    """
    try:
        with BufferedReader(open_regular(Path(file), follow_links=True)) as opened:
            data = opened.read(_MAX_KUBECONFIG + 1)
        if len(data) > _MAX_KUBECONFIG:
            raise BadInputError(f"kubeconfig {file}: has more than {_MAX_KUBECONFIG} bytes; check the path")
        text = data.decode("utf-8")
        check_limits(text)
        return yaml.safe_load(text)
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
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        # PyYAML 6.0 raises these errors for some invalid values, for example for `!!bool 1`.
        raise BadInputError(f"kubeconfig {file}: not readable as YAML; fix the file") from None
