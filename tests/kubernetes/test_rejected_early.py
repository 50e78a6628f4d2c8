"""A job that the cluster would reject is reported before the first request, and so without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset import aio
from stepset.cli import main
from stepset.errors import BadInputError, InfrastructureError
from tests.kubernetes.nowhere import kubeconfig


def _in_an_event_loop(*args: Any, **fields: Any) -> object:
    return asyncio.run(aio.run(*args, **fields))


@pytest.mark.parametrize("call", [stepset.run, stepset.submit, _in_an_event_loop])
def test_a_missing_image_is_reported_without_a_server(call: Callable[..., object], tmp_path: Path) -> None:
    cluster = stepset.ClusterOptions(kubeconfig(tmp_path, 1), namespace="ns")
    job = {"command": ["true"], "framework": "plain"}
    with pytest.raises(BadInputError, match=r"^image: is missing"):
        call(job, "kubernetes", cluster=cluster)
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        call({**job, "image": "image"}, "kubernetes", cluster=cluster)


def test_a_host_file_that_no_configmap_can_contain_is_reported_without_a_server(tmp_path: Path) -> None:
    cluster = stepset.ClusterOptions(kubeconfig(tmp_path, 1), namespace="ns")
    job = {"command": ["true"], "framework": "mpi", "image": "image", "procs_per_node": 1, "num_nodes": 30_000}
    with pytest.raises(BadInputError, match=r"^ConfigMap \S+: \d+ bytes; at most .* lower num_nodes"):
        stepset.submit(job, "kubernetes", cluster=cluster)


def test_the_command_line_reports_a_missing_image_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--backend", "kubernetes", "--kubeconfig", kubeconfig(tmp_path, 1), "--namespace", "ns")
    assert main(["run", *flags, "--framework", "plain", "--command", "--", "true"]) == 2
    assert "image: is missing" in capsys.readouterr().err
