"""`validate --server` checks whether the claims and Secrets that a job names exist, if the account may read them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from stepset.backends.kubernetes.submit.dry_run import check_on_server
from stepset.errors import BadInputError
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.targets.making import request

ENV = {"TOKEN": {"secret": "hub", "key": "token"}}
VALUE = base64.b64encode(b"hidden value").decode()
CORE = "/api/v1/namespaces/ns"
FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": 'User "x" cannot get resource "y" in API group ""'})


def checked(target: str = "jobset", *, readable: bool = True, **job: Any) -> tuple[list[str], list[str]]:
    """Checks a job on a server with the claim `data` and the Secret `hub`, whose key is `token`.

    Args:
        readable: whether the account may read claims and Secrets.

    Returns:
        The problems and the notes.
    """
    stored = {
        f"{CORE}/persistentvolumeclaims/data": {"metadata": {"name": "data"}},
        f"{CORE}/persistentvolumeclaims": {"items": [{"metadata": {"name": "data"}}]},
        f"{CORE}/secrets/hub": {"metadata": {"name": "hub"}, "data": {"token": VALUE}},
    }

    async def found() -> tuple[list[str], list[str]]:
        server: ApiServer

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if method == "POST":
                status = {"allowed": True, "userInfo": {"username": "x"}}
                return 201, {**server.bodies[-1][2], **({"status": status} if "review" in path else {})}
            if path.startswith((f"{CORE}/persistentvolumeclaims", f"{CORE}/secrets")):
                if not readable:
                    return FORBIDDEN
                absent = {"kind": "Status", "code": 404, "details": {"name": path.rpartition("/")[2]}}
                return (200, stored[path]) if path in stored else (404, absent)
            return 200, {"items": []}

        async with ApiServer(answer) as server, client_at(server.port) as client:
            try:
                result = await check_on_server(request(run="run", namespace="ns", **job), target, client)
            except BadInputError as error:
                return list(error.problems), []
            return [], list(result.notes)

    return asyncio.run(found())


@pytest.mark.parametrize("target", ["jobset", "trainjob", "statefulset", "job"])
def test_a_claim_and_a_secret_that_do_not_exist_are_problems(target: str) -> None:
    storage = [{"path": "/data", "claim": "nope"}]
    problems, _ = checked(target, storage=storage, env={"TOKEN": {"secret": "nosuch", "key": "a"}})
    assert problems == [
        "storage: PersistentVolumeClaim 'nope' does not exist in namespace ns; use one that exists: data",
        "env.TOKEN: Secret 'nosuch' does not exist in namespace ns; create it, or use another one",
    ]


def test_a_key_that_a_secret_does_not_have_is_a_problem_without_a_value() -> None:
    problems, _ = checked(env={"TOKEN": {"secret": "hub", "key": "password"}})
    assert problems == ["env.TOKEN: Secret 'hub' has no key 'password'; use one that exists: token"]


def test_objects_that_exist_are_accepted_without_a_note() -> None:
    assert checked(storage=[{"path": "/data", "claim": "data"}], env=ENV) == ([], [])


def test_objects_that_the_account_may_not_read_are_one_note() -> None:
    problems, notes = checked(readable=False, storage=[{"path": "/data", "claim": "data"}], env=ENV)
    assert (problems, notes) == (
        [],
        ["not checked, because you may not read it: PersistentVolumeClaim data, Secret hub"],
    )


def test_the_secret_of_ssh_keys_that_stepset_creates_is_not_checked() -> None:
    assert checked(framework="mpi") == ([], [])


def test_the_claims_and_secrets_of_the_pod_template_are_checked_with_their_fields() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "nope"}},
        {"name": "keys", "secret": {"secretName": "hub", "items": [{"key": "other", "path": "other"}]}},
        {"name": "maybe", "secret": {"secretName": "nosuch", "optional": True}},
    ]
    sources = [{"secretRef": {"name": "nosuch"}}]
    problems, _ = checked(pod_template={"volumes": volumes, "containers": [{"name": "node", "envFrom": sources}]})
    assert [problem.partition("; ")[0] for problem in problems] == [
        "pod_template.volumes.data.persistentVolumeClaim.claimName: PersistentVolumeClaim 'nope' does not exist in"
        " namespace ns",
        "pod_template.containers.node.envFrom.0: Secret 'nosuch' does not exist in namespace ns",
        "pod_template.volumes.keys.secret.items.0.key: Secret 'hub' has no key 'other'",
    ]
