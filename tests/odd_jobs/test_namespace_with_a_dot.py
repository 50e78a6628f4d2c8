"""A namespace whose name contains a dot, as the names of other objects may."""

from __future__ import annotations

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.cli import main
from stepset.errors import BadInputError
from stepset.targets.rbac import Account, rbac
from tests.odd_jobs import OddJob, everywhere

WORDS = "'team.a' is not a name Kubernetes accepts; use lower-case letters, digits and '-', at most 63 characters"
ODD_JOB = OddJob(
    job={"namespace": "team.a"},
    expected="stepset refuses the name; before, the API server refused each object.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, ValidateNamespaceName (DNS-1123 label)",
    refused=everywhere(f"namespace: {WORDS}"),
)


@pytest.mark.parametrize("name", ["a.b", "A", "-a", "a-", "a/b", "..", "a" * 64, "a b", "ä"])
def test_no_part_of_stepset_accepts_such_a_name(name: str) -> None:
    with pytest.raises(BadInputError, match="is not a name Kubernetes accepts"):
        ODD_JOB.render("jobset", namespace=name)
    with pytest.raises(BadInputError, match=r"^namespace: .* is not a name Kubernetes accepts"):
        rbac(namespace=name)
    with pytest.raises(BadInputError, match=r"^namespace: .* is not a name Kubernetes accepts"):
        rbac(accounts=[Account("trainer", name)])
    with pytest.raises(BadInputError, match=r"^--namespace: .* is not a name Kubernetes accepts"):
        NamespacedClient(None, name, Grant("cli"))  # type: ignore[arg-type]  # no request is sent


def test_the_command_line_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--namespace", "team.a"]) == 2
    assert capsys.readouterr().err == f"stepset: namespace: {WORDS}\n"
