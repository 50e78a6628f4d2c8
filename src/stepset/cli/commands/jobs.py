"""Commands that describe or check a job without running it: `stepset explain`, `validate` and `schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.errors import BadInputError

Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FORMAT", help="text, json or yaml.", show_default=False)
]


@takes_job
def explain(
    args: JobArgs,
    output: Output = "text",
    files: Annotated[
        bool, typer.Option("--files", help="List the files of the script or code that are shipped, largest first.")
    ] = False,
) -> int:
    """Show the command and the variables of every pod, and why they are set; with --files, the files that are shipped.

    \b
    Examples:
      stepset explain job.yaml
      stepset explain train.py --nodes 2 --procs-per-node 4 -o json
      stepset explain job.yaml --files

    Takes the flags of `stepset run`. Starts nothing and needs no cluster; addresses are those of a JobSet's pods.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.explanation import explanation, explanation_text
    from stepset.cli.output.formats import as_json, as_yaml, check_format
    from stepset.cli.output.terminal import write_out

    check_format(output, "text", "json", "yaml")
    given = read_job(args)
    as_data = as_json if output == "json" else as_yaml
    if files:
        from stepset.cli.output.shipped_files import shipped_files, shipped_files_text

        of_files = (given.job, given.base_dir)
        write_out(shipped_files_text(*of_files) if output == "text" else as_data(shipped_files(*of_files)))
    elif output == "text":
        write_out(explanation_text(given.job, given.plan))
    else:
        write_out(as_data(explanation(given.job, given.plan)))
    return 0


@takes_job
def validate(
    args: JobArgs,
    output: Output = "text",
    kind: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="KIND",
            help="Also check the manifests of this target: jobset, trainjob, statefulset, job or volcano;"
            " default: jobset, if the job has an image.",
        ),
    ] = None,
    server: Annotated[
        bool,
        typer.Option(
            "--server",
            help="Also send the job to a cluster as a dry run, and check your permissions there.",
        ),
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --server: namespace of the job; default: the context's.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --server: context of the kubeconfig; default: current.")
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="With --server: path of the kubeconfig; default: $KUBECONFIG, else ~/.kube/config."
        ),
    ] = None,
) -> int:
    """Check a job file or a script with flags, without running it.

    \b
    Examples:
      stepset validate job.yaml
      stepset validate job.yaml --target statefulset
      stepset validate train.py --nodes 2 -o yaml > job.yaml
      stepset validate job.yaml --server --namespace ml

    Prints one line for each problem and exits with 2; without problems it exits with 0. With -o yaml or json it prints
    the job as the shortest job file with the same meaning. With --server it also checks the job with a cluster; exit
    code 3 means that the cluster could not be reached.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.formats import as_json, as_yaml, check_format
    from stepset.cli.output.terminal import write_out
    from stepset.cli.output.world import world_in_words
    from stepset.printable import printable
    from stepset.sources import read_sources

    check_format(output, "text", "json", "yaml")
    given = read_job(args)
    sources = read_sources(given.job, given.base_dir)
    only_server = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
    more: list[str] = []
    if server:
        from stepset.cli.commands.validate_server import server_report

        more = server_report(given, sources, kind or "jobset", namespace, context, kubeconfig)
    elif flag := next((flag for flag, value in only_server.items() if value is not None), None):
        raise BadInputError(f"{flag}: requires --server; add that flag, or leave this one out")
    elif kind is not None or given.job.image is not None:
        from stepset.targets.validation.preflight import check

        try:
            check(given.job, given.plan, kind or "jobset")
        except BadInputError as error:
            raise error.at(given.where) from error
    if output != "text":
        write_out((as_json if output == "json" else as_yaml)(given.job.to_dict()))
        return 0
    world = world_in_words(given.plan.world.num_nodes, given.plan.world.procs_per_node)
    lines = [f"{given.where}: valid: {given.job.name}, {given.job.framework.kind}, {world}"]
    lines += [f"note: {note}" for note in (*given.plan.notes, *sources.notes)]
    lines += more
    write_out("".join(f"{printable(line)}\n" for line in lines))
    return 0


def schema() -> int:
    """Print the JSON Schema of the job file, for editors and checks.

    \b
    Example:
      stepset schema > stepset.schema.json
    and as the job file's first line:
      # yaml-language-server: $schema=stepset.schema.json
    """
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import write_out
    from stepset.spec.schema import job_schema

    write_out(as_json(job_schema()))
    return 0
