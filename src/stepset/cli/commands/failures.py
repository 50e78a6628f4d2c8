"""The command `stepset failures`, which prints the causes and remedies that docs/failures.md lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stepset.cli.arguments.run_args import Output
from stepset.cli.completion import failure_kinds

if TYPE_CHECKING:
    from stepset.cli.output.failure_kinds import KindOfFailure
    from stepset.cli.output.tables import Line, Table


def failures(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Default: all kinds.", autocompletion=failure_kinds)
    ] = None,
    output: Output = "text",
) -> int:
    """Show what causes a kind of failure, and how to remove the cause.

    \b
    Examples:
      stepset failures
      stepset failures OutOfMemory
      stepset failures -o json

    KIND is the word after the duration in the first line of a diagnosis. If KIND is not given, the command prints all
    kinds with their advice. With -o json, the command also prints the causes and remedies of all kinds.
    """
    from stepset.cli.output.documents import document
    from stepset.cli.output.failure_kinds import kinds_of_failure
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.tables import rendered, table
    from stepset.cli.output.terminal import write_out

    known = kinds_of_failure()
    chosen = known if kind is None else [_named(kind, known)]
    if output == "json":
        write_out(as_json(document("FailureKinds", {"items": chosen})))
    elif kind is None:
        write_out(rendered(table(["KIND", "ADVICE"], [(each["kind"], each["advice"]) for each in known])))
    else:
        write_out(rendered(*_shown(chosen[0])))
    return 0


def _named(kind: str, known: Sequence[KindOfFailure]) -> KindOfFailure:
    """Returns the kind with this name, without regard to case. Raises BadInputError if the name is unknown."""
    from stepset.errors import BadInputError

    for each in known:
        if each["kind"].lower() == kind.lower():
            return each
    names = ", ".join(each["kind"] for each in known)
    raise BadInputError(f"{kind}: no kind of failure; the kinds are {names}")


def _shown(kind: KindOfFailure) -> Iterator[str | Line | Table]:
    """Yields the parts of the page about a kind of failure: its name, its paragraphs and its causes."""
    from stepset.cli.output.tables import Line, table

    yield Line(kind["kind"], "bold")
    for text in (kind["advice"], *kind["notes"]):
        yield ""
        yield text
    if kind["causes"]:
        yield ""
    for cause in kind["causes"]:
        yield Line(cause["message"], "cyan")
        yield table(["", ""], [("  cause", cause["cause"]), ("  remedy", cause["remedy"])], header=False)
