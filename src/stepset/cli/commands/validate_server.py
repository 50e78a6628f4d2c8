"""Implements `stepset validate --server`, which checks whether an API server would accept a job."""

from __future__ import annotations

from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.submit.dry_run import Checked, check_on_server
from stepset.cli.arguments.job_input import JobInput
from stepset.errors import BadInputError
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.watch.present.sentences import counted


def server_report(
    given: JobInput, sources: Sources, target: str, namespace: str | None, context: str | None, kubeconfig: str | None
) -> list[str]:
    """Checks whether an API server would accept a job. Returns lines that list the checks.

    Raises:
        BadInputError: the server would not accept the job. The error contains one line for each problem.
        InfrastructureError: the server cannot be reached.
    """
    with connect(kubeconfig, context, "cli") as connection:
        request = make_request(given.job, sources, namespace=namespace or connection.namespace)
        try:
            checked = connection.call(check_on_server, request, target, connection.client)
        except BadInputError as error:
            raise error.at(given.where) from error
    return [_line(checked, target), *(f"note: {note}" for note in checked.notes)]


def _line(checked: Checked, target: str) -> str:
    place = f"as a {target} in namespace {checked.namespace}"
    if checked.pods:
        accepted, tried = f"the job {place}", f"{checked.objects} objects, {counted(checked.pods, 'pod')}"
    else:  # a note states why
        accepted, tried = f"the objects of the job {place}, but the pods were not checked", f"{checked.objects} objects"
    return (
        f"server {checked.server}: accepts {accepted} (dry run of {tried}; {checked.permissions} permissions checked)"
    )
