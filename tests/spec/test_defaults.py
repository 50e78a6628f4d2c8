"""Every interface has the same default of `startup_timeout`."""

from __future__ import annotations

import ast
from pathlib import Path

from stepset.backends.base import ClusterOptions
from stepset.defaults import STARTUP_TIMEOUT
from stepset.spec.quantity import format_duration
from stepset.watch.cluster.follow_policy import Timeouts

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_has_half_an_hour_to_start() -> None:
    assert STARTUP_TIMEOUT == 30 * 60


def test_the_python_api_and_followers_use_the_common_default() -> None:
    assert ClusterOptions().startup_timeout == Timeouts().startup == STARTUP_TIMEOUT


def test_the_kfp_component_has_the_common_default() -> None:
    # KFP copies the source of the function into the component, so its signature cannot refer to the constant.
    source = (ROOT / "components/stepset_kfp/training/distributed_train/component.py").read_text()
    (function,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    arguments = function.args.args[-len(function.args.defaults) :]
    defaults = {argument.arg: default for argument, default in zip(arguments, function.args.defaults, strict=True)}
    assert ast.literal_eval(defaults["startup_timeout"]) == STARTUP_TIMEOUT


def test_the_pages_state_the_common_default() -> None:
    short = format_duration(STARTUP_TIMEOUT)
    rows = {
        "docs/cli.md": f"| end the run as failed if not all pods are running within this time; default: {short} |",
        "docs/kubernetes.md": f"`--startup-timeout` (default: {STARTUP_TIMEOUT // 60} minutes)",
        "docs/airflow.md": f"| `admission_timeout`, `startup_timeout` | none, {STARTUP_TIMEOUT} seconds |",
        "docs/kfp.md": f"| `admission_timeout`, `startup_timeout` | none, {STARTUP_TIMEOUT} s |",
    }
    for page, row in rows.items():
        assert row in (ROOT / page).read_text(), page
