"""Loads credentials from a kubeconfig, or from the service account of the pod in which this process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stepset.backends.option_names import Interface, option
from stepset.errors import BadInputError
from stepset.spec.yamlfile import check_limits
from stepset.unstructured import one_line

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def load_into(configuration: Any, kubeconfig: str | None, context: str | None, interface: Interface) -> str:
    """Fills in `configuration`, a kubernetes.client.Configuration. Returns the default namespace.

    `load_config` describes the other arguments and the errors.
    """
    from kubernetes import config

    contents = _contents(kubeconfig, context, interface)
    if not contents:
        config.load_incluster_config(client_configuration=configuration)
        return (_SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip() or "default"
    where = os.pathsep.join(contents)
    try:
        config.load_kube_config(where, context, client_configuration=configuration)
        contexts, current = config.list_kube_config_contexts(where)
        chosen = next((each for each in contexts if each["name"] == context), current)
        check_impersonation(contents, context)
        return str(chosen["context"].get("namespace") or "default")
    except config.ConfigException as error:
        raise _unusable(where, context, str(error), interface) from error
    except (AttributeError, KeyError, TypeError, ValueError):
        # The file is YAML, but not a kubeconfig. The cause is omitted, because it may show the file's content.
        raise _unusable(where, context, "it is not a kubeconfig", interface) from None
    except OSError as error:  # a certificate file cannot be read
        raise BadInputError(f"kubeconfig {where}: {error.filename}: {error.strerror}; check the path") from error


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
        text = Path(file).read_text("utf-8")
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
