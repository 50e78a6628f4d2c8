"""The commands `stepset explain`, `validate` and `schema`, which describe or check a job without running it."""

from __future__ import annotations

from typing import Annotated

import typer

from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.cli.arguments.run_args import output_option
from stepset.cli.completion import targets
from stepset.errors import BadInputError
from stepset.targets.workload_kinds import TARGET_LIST

Output = Annotated[str, output_option("text", "json", "yaml", show_default=False)]


@takes_job
def explain(
    args: JobArgs,
    output: Output = "text",
    files: Annotated[
        bool, typer.Option("--files", help="List the files of the script or code that are shipped, largest first.")
    ] = False,
) -> int:
    """Show the command and the variables of every pod, with reasons.

    \b
    Examples:
      stepset explain job.yaml
      stepset explain train.py --nodes 2 --procs-per-node 4 -o json
      stepset explain job.yaml --files

    The command also shows the requirements that the pods install. The command takes the flags of `stepset run` that
    describe a job. The command starts no processes and needs no cluster. The addresses, ports and paths are valid for
    the pods of a JobSet. A local run uses other addresses, ports and paths. With --files, the command shows only the
    shipped files.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.documents import document
    from stepset.cli.output.explanation import explanation, explanation_text
    from stepset.cli.output.formats import as_json, as_yaml
    from stepset.cli.output.terminal import write_out
    from stepset.sources import find_requirements
    from stepset.targets.explained_groups import explained_plan

    given = read_job(args)
    as_data = as_json if output == "json" else as_yaml
    if files:
        from stepset.cli.output.shipped_files import shipped_files, shipped_files_text

        of_files = (given.job, given.base_dir)
        if output == "text":
            write_out(shipped_files_text(*of_files))
        else:
            write_out(as_data(document("ShippedFiles", shipped_files(*of_files))))
        return 0
    try:
        plan = explained_plan(given.job, given.plan)
        required = find_requirements(given.job, given.base_dir)
    except BadInputError as error:
        raise error.at(given.where) from error
    if output == "text":
        write_out(explanation_text(given.job, plan, required))
    else:
        write_out(as_data(document("Explanation", explanation(given.job, plan, required))))
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
            help=f"Also check the manifests of this target: {TARGET_LIST}; default: jobset, if the job has an image.",
            autocompletion=targets,
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
    """Check a job file, or a script with flags, without running it.

    \b
    Examples:
      stepset validate job.yaml
      stepset validate job.yaml --target statefulset
      stepset validate train.py --nodes 2 -o yaml > job.yaml
      stepset validate job.yaml --server --namespace ml

    If there are problems, the command prints one line for each problem, and the exit code is 2. Otherwise the exit code
    is 0. With -o yaml or json, the command prints the job as the shortest job file with the same meaning. With
    --server, a cluster also checks the job. The exit code 3 means that the cluster could not be reached.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.explanation import world_in_words
    from stepset.cli.output.formats import as_json, as_yaml
    from stepset.cli.output.terminal import write_out
    from stepset.printable import printable
    from stepset.sources import import_notes, read_sources
    from stepset.targets.notes import cluster_notes

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
            sources.check_shippable()
        except BadInputError as error:
            raise error.at(given.where) from error
    if output != "text":
        write_out((as_json if output == "json" else as_yaml)(given.job.to_dict()))
        return 0
    world = world_in_words(given.plan.world.num_nodes, given.plan.world.procs_per_node)
    lines = [f"{given.where}: valid: {given.job.name}, {given.job.framework.kind}, {world}"]
    notes = (*given.notes, *given.plan.notes, *sources.notes)
    if server or kind is not None or given.job.image is not None:
        notes += (*import_notes(sources), *cluster_notes(given.job))
    lines += [f"note: {note}" for note in notes]
    lines += more
    write_out("".join(f"{printable(line)}\n" for line in lines))
    return 0


def schema() -> int:
    """Print the JSON Schema of the job file, for editors and checks.

    \b
    Example:
      stepset schema > stepset.schema.json
    Then add this line as the first line of the job file:
      # yaml-language-server: $schema=stepset.schema.json
    """
    from stepset.cli.output.formats import as_json
    from stepset.cli.output.terminal import write_out
    from stepset.spec.schema import job_schema

    write_out(as_json(job_schema()))
    return 0
