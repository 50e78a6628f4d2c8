"""The flags that select a backend and a cluster. All commands about runs have these flags."""

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
    """The flags of a command line that select the backend and the cluster of runs."""

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
        """A string of flags that select this backend and cluster in another command.

        The string begins with a space. For local runs, the string is empty.
        """
        if self.backend == "local":
            return ""
        given = {
            "backend": None if os.environ.get("STEPSET_BACKEND") == self.backend else self.backend,
            "namespace": self.namespace,
            "context": self.context,
            "kubeconfig": self.kubeconfig,
        }
        return "".join(f" --{flag} {shlex.quote(value)}" for flag, value in given.items() if value is not None)

    def check(self) -> None:
        """Checks the flags without connecting to a cluster.

        Raises BadInputError if the backend is unknown, or if flags for a cluster are given and the backend is not a
        cluster.
        """
        if self.backend != "kubernetes":
            self.open_backend()

    def open_backend(
        self, *, flags: Mapping[str, object] | None = None, read_only: bool = False, **more: Any
    ) -> Backend:
        """Returns the selected backend. Raises BadInputError for a flag that the backend does not support.

        Args:
            flags: a mapping from the names of further flags to their values. These flags require a cluster.
            read_only: whether the command only reads runs.
            more: the values of further fields of ClusterOptions.
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
            return backend_of(self.backend, interface="cli")
        from stepset.cli.output.terminal import make_log_printable

        make_log_printable()
        options = ClusterOptions(self.kubeconfig, self.context, self.namespace, **more)
        return backend_of("kubernetes", options, "cli", read_only=read_only)


def takes_backend(command: Command) -> Command:
    """Adds the flags of BackendArgs to a command. The command must have a parameter `backend_args: BackendArgs`."""
    return with_flags(command, "backend_args", BackendArgs)
