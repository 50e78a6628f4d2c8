"""The rights of `on_orphan: stop`: Roles of their own, for the submitting accounts and for the watchers."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.rbac import Account, rbac

WATCHERS = {"kind": "ServiceAccount", "name": "stepset-orphan", "namespace": "ml"}


def added(backend: str = "kfp", **more: Any) -> list[dict[str, Any]]:
    """The objects that `--with orphan` adds."""
    base = rbac(backend, namespace="ml", **more)
    found = rbac(backend, namespace="ml", orphan=True, **more)
    assert [each for each in found if each in base] == base
    return [each for each in found if each not in base]


def rules_of(subject: str, objects: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Resource -> verbs of an account."""
    bound = {
        each["roleRef"]["name"] for each in objects if "subjects" in each and each["subjects"][0]["name"] == subject
    }
    roles = [each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] in bound]
    return {rule["resources"][0]: set(rule["verbs"]) for role in roles for rule in role["rules"]}


def test_a_submitting_account_may_create_watchers_and_read_their_service_account_only() -> None:
    objects = added()
    assert rules_of("pipeline-runner", objects) == {"jobs": {"create"}, "serviceaccounts": {"get"}}
    (role,) = [each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] == "stepset-orphan"]
    assert role["rules"][1]["resourceNames"] == ["stepset-orphan"]


@pytest.mark.parametrize(
    ("target", "plural"),
    [("jobset", "jobsets"), ("trainjob", "trainjobs"), ("statefulset", "statefulsets"), ("job", "jobs")],
)
def test_a_watcher_may_read_owners_and_stop_runs_and_has_no_other_right(target: str, plural: str) -> None:
    expected = {"pods": {"get"}, "workflows": {"get"}, plural: {"get", "patch", "delete"}}
    assert rules_of("stepset-orphan", added(targets=[target])) == expected


def test_the_watchers_have_a_service_account_of_their_own_that_no_other_account_shares() -> None:
    objects = added(accounts=[Account("trainer")])
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"] == ["stepset-orphan"]
    subjects = [each["subjects"] for each in objects if each["kind"] == "RoleBinding"]
    assert [WATCHERS] in subjects
    assert all(len(each) == 1 for each in subjects)


def test_roles_of_one_name_are_equal_whatever_the_targets_are() -> None:
    def roles(backend: str, **more: Any) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in added(backend, **more) if each["kind"] == "Role"}

    one, other = roles("kfp", targets=["jobset"]), roles("cli", targets=["job", "trainjob"])
    assert all(one[name] == other[name] for name in one.keys() & other.keys())
