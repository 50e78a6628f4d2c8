"""The flags that say where runs are, shared by all commands about runs."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend


@dataclass(frozen=True)
class Where:
    """Where runs are, as given on the command line."""

    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME", envvar="STEPSET_BACKEND", help="local: processes on this machine; kubernetes: a cluster."
        ),
    ] = "local"
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="On a cluster; default: the context's namespace.")
    ] = None
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the kubeconfig; default: its current one.")
    ] = None
    kubeconfig: Annotated[
        str | None, typer.Option(metavar="FILE", help="Default: what KUBECONFIG names, else ~/.kube/config.")
    ] = None

    @property
    def said(self) -> str:
        """These flags as another command needs them to find the same runs, with a space before; "" for local runs."""
        if self.backend == "local":
            return ""
        given = {
            "backend": None if os.environ.get("STEPSET_BACKEND") == self.backend else self.backend,
            "namespace": self.namespace,
            "context": self.context,
            "kubeconfig": self.kubeconfig,
        }
        return "".join(f" --{flag} {shlex.quote(value)}" for flag, value in given.items() if value is not None)

    def opened(self, *, flags: Mapping[str, object] | None = None, **more: Any) -> Backend:
        """Returns the backend that the flags name; BadInputError for a flag that has no meaning for it.

        Args:
            flags: further flags of the command that only a cluster understands, with the given values.
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
                raise BadInputError(f"{flag}: only says something with --backend kubernetes; add that, or leave it out")
            return backend_of(self.backend)
        where = ClusterOptions(self.kubeconfig, self.context, self.namespace, **more)
        return backend_of("kubernetes", where)


def takes_where(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command, which has a parameter `where`, the flags of one in its place; as `takes_job` does for jobs."""
    hints = get_type_hints(Where, include_extras=True)
    flags = {f.name: f.default for f in fields(Where)}
    own = inspect.signature(command, eval_str=True)

    def with_flags(*args: Any, **values: Any) -> int:
        given = {name: values.pop(name) for name in flags}
        return command(*args, where=Where(**given), **values)

    parameters: list[inspect.Parameter] = []
    for each in own.parameters.values():
        if each.name != "where":
            parameters.append(each)
            continue
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
            for name, default in flags.items()
        ]
    with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
    with_flags.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by typer
    with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_flags
