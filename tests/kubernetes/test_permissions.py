"""The command that an error about a missing permission contains."""

from __future__ import annotations

import shlex

import pytest

from stepset.backends.kubernetes.api.permissions import Grant, missing_permission
from stepset.backends.kubernetes.api.replies import Reply


def command(
    user: str, resource: str = "jobsets", group: str = "jobset.x-k8s.io", grant: Grant | None = None
) -> list[str]:
    """The words of the command for a reply to a user, whose name is quoted as in the reply."""
    text = f'{resource} is forbidden: User "{user}" cannot list resource "{resource}" in API group "{group}" in the'
    reply = Reply(403, {"message": f'{text} namespace "ml"'})
    _, _, found = str(missing_permission(reply, "ml", grant or Grant())).partition("have an administrator run: ")
    return shlex.split(found.removesuffix(" | kubectl apply -f -"))


@pytest.mark.parametrize(
    ("quoted", "name"),
    [
        ("jane", "jane"),
        ("Jane  Doe", "Jane  Doe"),
        ("https://login.example/#O'Brien", "https://login.example/#O'Brien"),
        (r"a\"b\\c\\\"", 'a"b\\c\\"'),
        ("&lt;a&amp;b&gt;", "<a&b>"),
        ("&amp;lt;", "&lt;"),
        ("$HOME `id` $(id); é 中", "$HOME `id` $(id); é 中"),
        ("-x", "-x"),
    ],
)
def test_it_names_the_user_whose_name_the_server_has_quoted(quoted: str, name: str) -> None:
    assert command(quoted) == ["stepset", "rbac", "--namespace", "ml", "--target", "jobset", "--user", name]


def test_it_names_a_service_account_with_its_namespace() -> None:
    assert command("system:serviceaccount:team:trainer")[-2:] == ["--account", "team/trainer"]


def test_it_names_interface_and_targets_of_the_request_and_the_right_that_it_lacks() -> None:
    grant = Grant("airflow", ("job", "statefulset"), gang="kueue")
    expected = (
        "stepset rbac --backend airflow --namespace ml --target job --target statefulset --gang kueue --mpi --user x"
    )
    assert command("x", "secrets", "", grant) == expected.split()


@pytest.mark.parametrize(
    ("resource", "group", "more"),
    [
        ("workloads", "kueue.x-k8s.io", ["--gang", "kueue"]),
        ("podgroups", "scheduling.volcano.sh", []),
        ("secrets", "", []),
    ],
)
def test_the_command_for_an_account_that_only_reads_grants_no_permission_to_change_objects(
    resource: str, group: str, more: list[str]
) -> None:
    words = ["--namespace", "ml", "--target", "jobset", "--read-only", *more, "--user", "x"]
    assert command("x", resource, group, Grant(read_only=True)) == ["stepset", "rbac", *words]


@pytest.mark.parametrize("message", ['User "" cannot list resource ', 'User "' + "a" * 5000 + '" cannot', "cannot", ""])
def test_it_names_the_account_of_the_interface_if_the_server_names_none(message: str) -> None:
    text = str(missing_permission(Reply(403, {"message": message}), "ml", Grant()))
    assert text.endswith("stepset rbac --namespace ml --target jobset | kubectl apply -f -")


@pytest.mark.parametrize(
    ("resource", "group", "unknown"),
    [("jobsets", "jobset.x-k8s.io", True), ("statefulsets", "apps", True), ("pods/exec", "", False)],
)
def test_it_states_that_the_namespace_may_not_exist_if_no_permission_of_the_namespace_is_known(
    resource: str, group: str, unknown: bool
) -> None:
    """The server replies in the same way to an account whose permissions are limited to other namespaces."""
    text = f'User "x" cannot create resource "{resource}" in API group "{group}" in the namespace "nope"'
    error = str(missing_permission(Reply(403, {"message": text}), "nope", Grant()))
    create = "which might not exist (stepset rbac --create-namespace also creates it)"
    words = f'namespace "nope", {create}; have an administrator run: '
    assert (words in error) is unknown


@pytest.mark.parametrize(("verb", "exists"), [("delete", False), ("patch", False), ("list", True)])
def test_it_does_not_state_that_a_namespace_may_not_exist_whose_objects_are_known(verb: str, exists: bool) -> None:
    text = f'User "x" cannot {verb} resource "jobsets" in API group "jobset.x-k8s.io" in the namespace "ml"'
    error = str(missing_permission(Reply(403, {"message": text}), "ml", Grant(), in_namespace=exists))
    assert 'in the namespace "ml"; have an administrator run: ' in error
