"""Whose credentials are used: a kubeconfig's, or those of the pod this runs in. Called by `client.connect`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stepset.errors import BadInputError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Source:
    """Where credentials come from.

    Args:
        files: kubeconfigs, merged in their order; empty: the pod's service account.
        context: of the kubeconfig; None: its current one.
    """

    files: tuple[str, ...]
    context: str | None = None

    def load(self, configuration: Any) -> str:
        """Fills in a kubernetes.client.Configuration.

        Returns:
            The namespace that is meant where none is given.

        Raises:
            BadInputError: the files or the context cannot be used.
        """
        from kubernetes import config

        if not self.files:
            config.load_incluster_config(client_configuration=configuration)
            return (_SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip() or "default"
        where = os.pathsep.join(self.files)
        try:
            config.load_kube_config(where, self.context, client_configuration=configuration)
            contexts, current = config.list_kube_config_contexts(where)
        except config.ConfigException as error:
            raise self._unusable(where, str(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError):
            # Of files that are YAML but no kubeconfig; the cause may show what is in them.
            raise self._unusable(where, "it is no kubeconfig") from None
        except OSError as error:  # certificates it names
            raise BadInputError(f"kubeconfig {where}: {error.filename}: {error.strerror}; check the path") from error
        chosen = next((each for each in contexts if each["name"] == self.context), current)
        return str(chosen["context"].get("namespace") or "default")

    def _unusable(self, where: str, said: str) -> BadInputError:
        if self.context is not None and self.context in said:
            return BadInputError(
                f"--context: {self.context!r} is not in kubeconfig {where}; `kubectl config get-contexts` lists them"
            )
        words = " ".join(said.split())[:200].rstrip(".")
        return BadInputError(f"kubeconfig {where}: cannot be used: {words}; check the file and its current context")


def find(kubeconfig: str | None, context: str | None) -> Source:
    """Whose credentials to use.

    Args:
        kubeconfig: a file; default: what KUBECONFIG names, else ~/.kube/config, else the pod's service account.
        context: of the kubeconfig; default: its current one.

    Raises:
        BadInputError: a file cannot be read, or there is none.
    """
    named = [kubeconfig] if kubeconfig else [f for f in os.environ.get("KUBECONFIG", "").split(os.pathsep) if f]
    files = named or [str(Path("~/.kube/config").expanduser())]
    there = [each for each in files if kubeconfig or _is_there(Path(each))]
    if there:
        for each in there:
            _check(each)
        return Source(tuple(there), context)
    if named:
        raise BadInputError(f"kubeconfig {os.pathsep.join(named)}: no such file; check KUBECONFIG")
    if "KUBERNETES_SERVICE_HOST" in os.environ and (_SERVICE_ACCOUNT / "token").exists():
        if context is not None:
            raise BadInputError("--context: inside a pod there is none; give --kubeconfig too, or leave it out")
        return Source(())
    raise BadInputError("no cluster is named; give --kubeconfig FILE, or set KUBECONFIG")


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # whoever reads it says why it cannot be read
    return True


def _check(file: str) -> None:
    """That a file can be read, with words of our own; what is in it is never shown."""
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
        raise BadInputError(f"kubeconfig {file}: {line}not readable as YAML; mend the file") from None
