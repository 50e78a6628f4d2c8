"""Commands about Kubernetes that need no cluster: `stepset render` and `stepset rbac`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.errors import BadInputError

Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="yaml or json.", show_default=False)]
Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="KIND", help="jobset (default), trainjob, statefulset, job or volcano.",
        show_default=False,
    ),
]  # fmt: skip


@takes_job
def render(
    args: JobArgs,
    kind: Target = "jobset",
    output: Output = "yaml",
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace in the manifests; default: none.")
    ] = None,
) -> int:
    """Print the Kubernetes manifests of a job.

    \b
    Examples:
      stepset render job.yaml
      stepset render job.yaml --target statefulset -o json
      stepset render job.yaml | kubectl apply --server-side -f -

    Takes the flags of `stepset run` and needs no cluster. The same job gives the same bytes; the objects are in the
    order in which they must be applied. Exits with 2 and one line for each problem if a cluster would reject them.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.formats import check_format
    from stepset.cli.output.terminal import write_out
    from stepset.rendering import make_request
    from stepset.sources import read_sources
    from stepset.targets.render import render as render_request

    check_format(output, "yaml", "json")
    given = read_job(args)
    request = make_request(given.job, read_sources(given.job, given.base_dir), namespace=namespace)
    try:
        objects = render_request(request, kind)
    except BadInputError as error:
        raise error.at(given.where) from error
    write_out(_as_text(objects, output))
    return 0


def rbac(
    backend: Annotated[
        str, typer.Option("--backend", metavar="BACKEND", help="Who submits runs: cli (default), airflow or kfp.")
    ] = "cli",
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="KIND",
            help="jobset (default), trainjob, statefulset, job or volcano; repeatable.",
        ),
    ] = None,
    gang: Annotated[
        str, typer.Option(metavar="GANG", help="none (default), kueue, coscheduling or volcano.", show_default=False)
    ] = "none",
    mpi: Annotated[bool, typer.Option("--mpi", help="Also for MPI jobs, whose ssh keys are a Secret.")] = False,
    lost_node: Annotated[
        bool, typer.Option("--lost-node", help="Also for jobs with restart.lost_node: release.")
    ] = False,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the runs; default: default.", show_default=False)
    ] = "default",
    account: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAMESPACE/]NAME", help="Service account that gets the Roles; repeatable."),
    ] = None,
    user: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="User that gets the Roles; repeatable.")
    ] = None,
    network_policy: Annotated[
        bool, typer.Option("--network-policy", help="Also for jobs with network.policy: true.")
    ] = False,
    output: Output = "yaml",
) -> int:
    """Print the minimal Roles for submitting, watching and ending runs, and their RoleBindings.

    \b
    Examples:
      stepset rbac --backend airflow --namespace ml | kubectl apply -f -
      stepset rbac --account team-a/trainer --target trainjob
    """
    from stepset.cli.output.formats import check_format
    from stepset.cli.output.terminal import write_out
    from stepset.targets.rbac import rbac as rbac_objects

    check_format(output, "yaml", "json")
    accounts = [*map(_account, account or ()), *map(_user, user or ())]
    objects = rbac_objects(
        backend,
        targets=target or ["jobset"],
        gang=gang,
        mpi=mpi,
        lost_node=lost_node,
        network_policy=network_policy,
        namespace=namespace,
        accounts=accounts,
    )
    write_out(_as_text(objects, output))
    return 0


def _account(text: str) -> Any:
    from stepset.targets.rbac import Account

    namespace, _, name = text.rpartition("/")
    return Account(name, namespace or None)


def _user(name: str) -> Any:
    from stepset.targets.rbac import Account

    return Account(name, user=True)


def _as_text(objects: list[dict[str, Any]], output: str) -> str:
    from stepset.targets.dump import to_json, to_yaml

    return to_json(objects) if output == "json" else to_yaml(objects)
