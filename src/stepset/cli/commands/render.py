"""The commands `stepset render` and `stepset rbac`, which print Kubernetes objects and need no cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stepset.cli.arguments.job_args import JobArgs, takes_job
from stepset.cli.arguments.run_args import output_option
from stepset.cli.completion import targets
from stepset.errors import BadInputError
from stepset.targets.workload_kinds import TARGET_LIST_WITH_DEFAULT, TARGET_NAMES

_RIGHTS = ("exec", "orphan", "priorities", "quotas", "validate")
"""The values of `--with`. Each value is also the name of a parameter of `stepset.targets.rbac.rbac`."""
Output = Annotated[str, output_option("yaml", "json", show_default=False)]
Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="KIND", help=f"{TARGET_LIST_WITH_DEFAULT}.",
        show_default=False, autocompletion=targets,
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
    run_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run; default: the name of the job.")
    ] = None,
) -> int:
    """Print the Kubernetes manifests of a job.

    \b
    Examples:
      stepset render job.yaml
      stepset render job.yaml --target statefulset -o json
      stepset render job.yaml | kubectl apply --server-side -f -

    The command takes the flags of `stepset run` that describe a job. The command needs no cluster. The same job
    always has the same output. The objects are printed in the order in which they must be applied. If a cluster would
    reject the objects, the command prints one line for each problem, and the exit code is 2.
    """
    from stepset.cli.arguments.job_input import read_job
    from stepset.cli.output.terminal import print_line, write_out
    from stepset.rendering import make_request
    from stepset.rendering import render as render_request
    from stepset.sources import read_sources
    from stepset.targets.names import has_placeholder

    given = read_job(args)
    request = make_request(given.job, read_sources(given.job, given.base_dir), run=run_name, namespace=namespace)
    try:
        objects = render_request(request, kind)
    except BadInputError as error:
        raise error.at(given.where) from error
    write_out(_as_text(objects, output))
    for each in filter(has_placeholder, objects):
        print_line(
            f"note: {each['kind']} {each['metadata']['name']} contains placeholders, because the output must be"
            " reproducible; replace their values before you apply the objects (docs/guides/gitops.md#generated-values)"
        )
    return 0


def rbac(
    backend: Annotated[
        str, typer.Option("--backend", metavar="BACKEND", help="What submits runs: cli (default), airflow or kfp.")
    ] = "cli",
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="KIND",
            help=f"{TARGET_LIST_WITH_DEFAULT}; repeatable.",
            autocompletion=targets,
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Only for reading runs and their logs; default of --target: all kinds."),
    ] = False,
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
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Group of users that gets the Roles; repeatable.")
    ] = None,
    network_policy: Annotated[
        bool, typer.Option("--network-policy", help="Also for jobs with network.policy: true.")
    ] = False,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="RIGHT",
            help="Also grant a right: exec, for stepset exec and stacks; orphan, for on_orphan: stop; priorities, to"
            " read PriorityClasses and WorkloadPriorityClasses; quotas, to read ClusterQueues; validate, for the check"
            " of pods by stepset validate --server; repeatable.",
        ),
    ] = None,
    bindings_only: Annotated[
        bool,
        typer.Option(
            "--bindings-only", help="Only the RoleBindings of the accounts: delete these to revoke their permissions."
        ),
    ] = False,
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Also print the namespace of the runs.")
    ] = False,
    create_service_account: Annotated[
        bool, typer.Option("--create-service-account", help="Also print the service accounts of --account.")
    ] = False,
    output: Output = "yaml",
) -> int:
    """Print minimal Roles for submitting, watching and ending runs.

    \b
    Examples:
      stepset rbac --backend airflow --namespace ml | kubectl apply -f -
      stepset rbac --account team-a/trainer --target trainjob
      stepset rbac --namespace ml --account trainer --create-namespace \\
        --create-service-account
      stepset rbac --user jane --namespace ml --with exec
      stepset rbac --group on-call --namespace ml --read-only --gang kueue
      stepset rbac --user jane --namespace ml --bindings-only \\
        | kubectl delete --ignore-not-found -f -

    The command also prints the RoleBindings of the accounts. All accounts of the namespace use the same Roles.
    Therefore, do not pass the complete output to `kubectl delete`. To revoke the permissions of one account, use
    --bindings-only, as in the last example.
    """
    from stepset.cli.output.terminal import write_out
    from stepset.targets.rbac import Account
    from stepset.targets.rbac import rbac as rbac_objects

    if unknown := set(more or ()) - set(_RIGHTS):
        raise BadInputError(
            f"--with: {min(unknown)!r} is not a right that can be added; use one of {', '.join(_RIGHTS)}"
        )
    if bindings_only and (create_namespace or create_service_account):
        flag = "--create-namespace" if create_namespace else "--create-service-account"
        raise BadInputError(f"{flag}: --bindings-only prints RoleBindings only; leave one of them out")
    writing = {"--mpi": mpi, "--lost-node": lost_node, "--network-policy": network_policy}
    writing |= {f"--with {right}": right in (more or ()) for right in ("orphan", "validate")}
    if read_only and (flag := next((flag for flag, given in writing.items() if given), "")):
        raise BadInputError(f"{flag}: grants the right to change objects; leave out this flag, or --read-only")
    if create_service_account and not account:
        raise BadInputError("--create-service-account: no service account is given; add --account NAME")
    accounts = [
        *map(_account, account or ()),
        *(Account(name, kind="User") for name in user or ()),
        *(Account(name, kind="Group") for name in group or ()),
    ]
    objects = rbac_objects(
        backend,
        targets=target or (TARGET_NAMES if read_only else ["jobset"]),
        read_only=read_only,
        gang=gang,
        mpi=mpi,
        lost_node=lost_node,
        network_policy=network_policy,
        **{right: right in (more or ()) for right in _RIGHTS},
        namespace=namespace,
        accounts=accounts,
        bindings_only=bindings_only,
        create_namespace=create_namespace,
        create_service_account=create_service_account,
    )
    write_out(_as_text(objects, output))
    return 0


def _account(text: str) -> Any:
    from stepset.targets.rbac import Account

    namespace, _, name = text.rpartition("/")
    return Account(name, namespace or None)


def _as_text(objects: list[dict[str, Any]], output: str) -> str:
    from stepset.targets.dump import to_json, to_yaml

    return to_json(objects) if output == "json" else to_yaml(objects)
