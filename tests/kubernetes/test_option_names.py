"""Errors name an option as each interface has it: a flag, an argument of ClusterOptions, a parameter."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset import aio
from stepset.backends.base import ClusterOptions, RunRequest
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.option_names import Interface
from stepset.cli.app import build
from stepset.errors import BadInputError, StepsetError
from stepset.sources import read_sources
from stepset.spec import parse_job
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at, kubeconfig

JOB = {"command": ["true"], "framework": "plain", "image": "image"}
ROOT = Path(__file__).parents[2]
NO_NAMESPACE = {
    "kind": "Status", "code": 404, "reason": "NotFound", "message": 'namespaces "ns" not found',
    "details": {"name": "ns", "kind": "namespaces"},
}  # fmt: skip
NO_KIND = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
FORBIDDEN = {
    "kind": "Status", "code": 403, "reason": "Forbidden",
    "message": 'x is forbidden: User "jane" cannot list resource "jobsets" in API group "jobset.x-k8s.io"',
}  # fmt: skip


def _error(interface: Interface, status: int, body: dict[str, Any], *, all_namespaces: bool = False) -> str:
    """Returns the error for a run, or for a list, on a server that refuses every request."""

    async def call() -> str:
        async with ApiServer(lambda *_: (status, body)) as server, client_at(server.port) as client:
            runs = ClusterRuns(NamespacedClient(client, "ns", Grant(interface)))
            job = parse_job(JOB)
            with pytest.raises(StepsetError) as raised:
                if all_namespaces:
                    await runs.list(all_namespaces=True)
                else:
                    await runs.make(RunRequest(job, read_sources(job, Path())))
            return str(raised.value)

    return asyncio.run(call())


@pytest.mark.parametrize(
    ("interface", "namespace", "target"),
    [
        ("cli", "--namespace NAME", "--target job"),
        ("python", "ClusterOptions(namespace='NAME')", "ClusterOptions(target='job')"),
        ("airflow", "namespace='NAME'", "target='job'"),
        ("kfp", "namespace='NAME'", "target='job'"),
    ],
)
def test_the_remedy_is_an_option_of_the_callers_interface(interface: Interface, namespace: str, target: str) -> None:
    assert _error(interface, 404, NO_NAMESPACE).endswith(f"give another one: {namespace}")
    assert _error(interface, 404, NO_KIND).endswith(f"; use {target}, or install it")
    every = _error(interface, 403, FORBIDDEN, all_namespaces=True)
    assert every.endswith(f"; list the runs of one namespace instead: {namespace}")


def test_the_python_api_names_its_own_options_for_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    options = ClusterOptions(kubeconfig(tmp_path, 1), context="other")
    for call in (
        lambda cluster: stepset.list_runs("kubernetes", cluster=cluster),
        lambda cluster: asyncio.run(aio.status("run", "kubernetes", cluster=cluster)),
    ):
        with pytest.raises(BadInputError, match=r"^cluster\.context: 'other' is not in kubeconfig"):
            call(options)
        with pytest.raises(BadInputError) as raised:
            call(None)
        assert str(raised.value) == ("no kubeconfig found; give ClusterOptions(kubeconfig='FILE'), or set KUBECONFIG")
    with pytest.raises(BadInputError, match=r"^no kubeconfig found; set KUBECONFIG$"):
        connect(interface="kfp")


def _flags() -> set[str]:
    """Returns every long flag of the command line."""
    given = (name for command in build().commands.values() for each in command.params for name in each.opts)
    return {name for name in given if name.startswith("--")}


def _texts(file: Path) -> Iterator[str]:
    """Yields the texts of a module, without docstrings and without words that are nothing but a flag."""
    tree = ast.parse(file.read_text("utf-8"))
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if not isinstance(each, ast.Constant) or not isinstance(each.value, str) or id(each) in alone:
            continue
        if not re.fullmatch(r"--[a-z-]+", each.value):
            yield each.value


def test_no_message_outside_the_command_line_names_one_of_its_flags() -> None:
    """Commands are no exception to the rule: `stepset logs NAME --ranks 3` works for the users of every interface."""
    words = "|".join(sorted(_flags()))
    flag = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
    # The options of other programs: launchers, mpirun, uv; the flag that the caller's interface selects.
    others = re.compile(r"/(cli|agent|frameworks|plan|requirements)/|option_names|shell_variables")
    files = [file for name in ("src", "providers", "components") for file in sorted((ROOT / name).rglob("*.py"))]
    found = [
        f"{file.relative_to(ROOT)}: {text}"
        for file in files
        if not others.search(str(file.relative_to(ROOT)))
        for text in _texts(file)
        if flag.search(text) and not re.search(r"stepset [a-z]+ |^ --backend kubernetes$", text)
    ]
    assert found == []
