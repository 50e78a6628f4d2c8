"""The command `stepset stacks`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepset.cli.arguments.backend_args import BackendArgs, takes_backend
from stepset.cli.arguments.run_args import NewestOrName, output_option, run_named


@takes_backend
def stacks(
    name: NewestOrName = None,
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", "--rank", metavar="LIST", help="Only these ranks, such as 2,5 or 0-3; default: all."),
    ] = None,
    output: Annotated[str, output_option("text", "json", "html")] = "text",
    *,
    backend_args: BackendArgs,
) -> int:
    """Show where the running ranks are in the code.

    \b
    Examples:
      stepset stacks digits
      stepset stacks digits --ranks 2,5
      stepset stacks digits -o html > stacks.html

    Ranks with the same stack are one paragraph. With -o html, the command prints a page with a flame graph of all
    ranks. The ranks continue. On a cluster, your account needs the permission that stepset rbac --with exec grants. If
    the stacks of a pod cannot be read, the command prints a line to stderr.
    """
    from stepset.cli.output.documents import stacks_document
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.html.flame_graph import stacks_page
    from stepset.log_sources import check_sources, sources_of
    from stepset.watch.present.stacks_text import stacks_text, time_words

    wanted = None if ranks is None else sources_of(ranks, "--ranks")
    backend = backend_args.open_backend(read_only=True)
    run = run_named(backend, name)
    if wanted is not None:
        check_sources(wanted, run, "--ranks")
    found = backend.stacks(run.name, wanted)
    if output == "json":
        write_out(as_json(stacks_document(found)))
    elif output == "html":
        write_out(stacks_page(found, time_words(found)))
    else:
        write_out(f"{stacks_text(found)}\n")
    for problem in found.problems:
        print_line(problem)
    return 0
