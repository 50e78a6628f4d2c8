"""The flags that select a backend and a cluster, shared by all commands about runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepset.cli.arguments.flags import Command, with_flags
from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend


@dataclass(frozen=True)
class BackendArgs:
    """The backend and the cluster of runs, as given on the command line."""

    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME", envvar="STEPSET_BACKEND", help="local: processes on this machine; kubernetes: a cluster."
        ),
    ] = "local"
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace of the runs; default: that of the context.")
    ] = None
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current context.")
    ] = None
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Path of the kubeconfig; default: $KUBECONFIG, else ~/.kube/config."),
    ] = None

    @property
    def as_flags(self) -> str:
        """The flags with which another command finds the same runs, with a leading space; "" for local runs."""
        if self.backend == "local":
            return ""
        given = {
            "backend": None if os.environ.get("STEPSET_BACKEND") == self.backend else self.backend,
            "namespace": self.namespace,
            "context": self.context,
            "kubeconfig": self.kubeconfig,
        }
        return "".join(f" --{flag} {shlex.quote(value)}" for flag, value in given.items() if value is not None)

    def open_backend(self, *, flags: Mapping[str, object] | None = None, **more: Any) -> Backend:
        """Returns the backend that the flags name; BadInputError for a flag that it does not support.

        Args:
            flags: further flags that only a cluster supports -> their values.
            more: further fields of ClusterOptions.
        """
        from stepset.backends import backend_of
        from stepset.backends.base import ClusterOptions

        if self.backend != "kubernetes":
            given = {"--namespace": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
            flag = next(
                (flag for flag, value in {**given, **(flags or {})}.items() if value not in (None, False)), None
            )
            if flag and self.backend == "local":
                raise BadInputError(f"{flag}: requires --backend kubernetes; add that flag, or leave this one out")
            return backend_of(self.backend)
        from stepset.cli.output.log_messages import make_log_printable

        make_log_printable()
        return backend_of("kubernetes", ClusterOptions(self.kubeconfig, self.context, self.namespace, **more))


def takes_backend(command: Command) -> Command:
    """Adds the flags of BackendArgs to a command whose parameter `backend_args` is a BackendArgs."""
    return with_flags(command, "backend_args", BackendArgs)
