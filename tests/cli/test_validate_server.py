"""`stepset validate --server` before it sends a request: the package, the kubeconfig, the flags."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Cli
from tests.cli.test_bad_input import unprivileged

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "me", "user": {"token": "s3cret"}}],
}


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print('training')\n")
    (tmp_path / "job.yaml").write_text("image: a:1\nscript: train.py\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def refused(cli: Cli, *flags: str) -> str:
    result = cli("validate", "job.yaml", *flags)
    assert (result.code, result.out, len(result.errors)) == (2, "", 1), result
    assert "s3cret" not in result.err
    return result.errors[0].removeprefix("stepset: ")


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from stepset.cli import main
sys.exit(main(sys.argv[2:]))
"""


class TestWithoutThePackage:
    def _stepset(
        self, directory: Path, *argv: str, without: str = "kubernetes,cryptography,aiohttp,yarl"
    ) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-W", "error", "-c", BLOCKED, without, *argv]
        return subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=60)

    @pytest.mark.parametrize("package", ["kubernetes", "aiohttp"])
    @pytest.mark.parametrize(
        "command",
        [
            ["validate", "job.yaml", "--server"],
            ["run", "job.yaml", "--image", "train:1", "--backend", "kubernetes"],
            ["list", "--backend", "kubernetes"],
            ["exec", "train", "--backend", "kubernetes", "--", "env"],
        ],
        ids=lambda command: command[0],
    )
    def test_one_line_states_how_to_install_it(self, tmp_path: Path, command: list[str], package: str) -> None:
        done = self._stepset(tmp_path, *command, without=package)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"stepset: the Python package {package} is missing; in a checkout of stepset's repository, run: pip install"
            " '.[kubernetes]'\n"
        )

    def test_the_doctor_names_it_as_a_problem(self, tmp_path: Path) -> None:
        done = self._stepset(tmp_path, "doctor", "--backend", "kubernetes")
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.endswith(
            "problem: cluster: the Python package aiohttp is missing\n"
            "  fix: in a checkout of stepset's repository, run: pip install '.[kubernetes]'\n"
        )

    @pytest.mark.parametrize("command", ["validate", "render", "explain"])
    def test_other_commands_work_without_it(self, tmp_path: Path, command: str) -> None:
        assert self._stepset(tmp_path, command, "job.yaml").returncode == 0


class TestKubeconfig:
    @pytest.fixture(autouse=True)
    def package(self) -> None:
        pytest.importorskip("kubernetes", reason="stepset[kubernetes] is not installed here")

    def test_none(self, cli: Cli) -> None:
        assert refused(cli, "--server") == "no kubeconfig found; give --kubeconfig FILE, or set KUBECONFIG"

    def test_a_missing_file(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        message = refused(cli, "--server", "--kubeconfig", "nope")
        assert message == "kubeconfig nope: no such file; check the path"
        monkeypatch.setenv("KUBECONFIG", f"nope{os.pathsep}neither")
        assert refused(cli, "--server") == f"kubeconfig nope{os.pathsep}neither: no such file; check KUBECONFIG"

    def test_a_file_without_read_permission(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(KUBECONFIG))
        path.chmod(0)
        words = ("validate", "-m", "train", "--image", "a:1", "--server")
        cli(*words)  # everything is imported while it can be read
        with unprivileged():
            result = cli(*words, "--kubeconfig", str(path))
        assert result.errors == [
            f"stepset: kubeconfig {path}: cannot be read: Permission denied; check the path and its permissions"
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("users: [s3cret\n", "line 2: not readable as YAML; fix the file"),
            ("s3cret\n", "cannot be used: it is not a kubeconfig; check the file and its current context"),
            ("[s3cret]\n", "cannot be used: it is not a kubeconfig; check the file and its current context"),
            ("", "cannot be used: "),
            ("{current-context: s, users: s3cret, contexts: 3, clusters: []}", "cannot be used: "),
        ],
    )
    def test_an_invalid_kubeconfig_is_reported_without_its_content(
        self, cli: Cli, tmp_path: Path, text: str, message: str
    ) -> None:
        (tmp_path / "config").write_text(text)
        assert refused(cli, "--server", "--kubeconfig", "config").startswith(f"kubeconfig config: {message}")

    def test_an_unknown_context(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "config").write_text(yaml.safe_dump(KUBECONFIG))
        assert refused(cli, "--server", "--kubeconfig", "config", "--context", "there") == (
            "--context: 'there' is not in kubeconfig config; `kubectl config get-contexts` lists them"
        )

    def test_missing_certificates(self, cli: Cli, tmp_path: Path) -> None:
        cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "nope.crt"}
        content = {**KUBECONFIG, "clusters": [{"name": "here", "cluster": cluster}]}
        (tmp_path / "config").write_text(yaml.safe_dump(content))
        message = refused(cli, "--server", "--kubeconfig", "config")
        assert message.startswith("kubeconfig config: ")
        assert "nope.crt" in message

    def test_an_unreachable_server_is_not_bad_input(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "config").write_text(yaml.safe_dump(KUBECONFIG))
        result = cli("validate", "job.yaml", "--server", "--kubeconfig", "config")
        assert (result.code, result.out, len(result.errors)) == (3, "", 1)
        assert result.errors[0].startswith("stepset: server https://127.0.0.1:1: cannot be reached: ")
        assert "s3cret" not in result.err


@pytest.mark.parametrize("flag", ["--namespace", "--context", "--kubeconfig"])
def test_flags_for_a_server_require_server(cli: Cli, flag: str) -> None:
    message = refused(cli, flag, "x")
    assert message == f"{flag}: requires --server; add that flag, or leave this one out"
