"""Any kubeconfig, and any file or plugin that it names, gives a configuration or one short line, in bounded time."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from stepset.backends.kubernetes.api.kubeconfig import load_into
from stepset.errors import BadInputError, StepsetError
from stepset.printable import printable
from tests.fuzzing import FUZZED

CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "n"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "eA=="}}],
    "users": [{"name": "c", "user": {"token": "hunter2", "username": "u", "password": "hunter2"}}],
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
# Loads a kubeconfig with 1 GiB of memory.
LOAD = """\
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from stepset.cli import main
sys.exit(main(["list", "--backend", "kubernetes", "--kubeconfig", sys.argv[1]]))
"""


def load(path: Path) -> str:
    return load_into(client.Configuration(), str(path), None, "python")


def refused(path: Path) -> str:
    with pytest.raises(StepsetError) as raised:
        load(path)
    text = str(raised.value)
    assert len(text) < 1000 and "\n" not in text and "hunter2" not in text and printable(text) == text
    return text


def written(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    config = copy.deepcopy(CONFIG)
    config["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", **cluster}
    config["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(config))
    return path


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inside for place in places(each, (*path, key)))]


@FUZZED
@given(st.sampled_from(places(CONFIG)), JUNK)
def test_a_value_of_any_type_anywhere(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], junk: Any
) -> None:
    config = copy.deepcopy(CONFIG)
    if place:
        at: Any = config
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = junk
    path = tmp_path_factory.mktemp("any") / "config"
    path.write_text(yaml.safe_dump(config if place else junk))
    try:
        load(path)
    except StepsetError:
        refused(path)


@FUZZED
@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int) -> None:
    text = yaml.safe_dump(CONFIG).encode()
    path = tmp_path_factory.mktemp("any") / "config"
    path.write_bytes(text[:at] + data + text[at:])
    try:
        load(path)
    except StepsetError:
        refused(path)


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "&a [*a]\n", "users: &a [*a]\n", "a: \0\n", "\ud800"])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused(path)


def special(directory: Path, kind: str) -> Path:
    """A file that cannot be read as a regular file of limited size."""
    path = directory / f"{kind}-file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(64 << 30)
    return path


def listed(config: Path) -> str:
    """Runs `stepset list` with limits of time and memory; returns its error."""
    done = subprocess.run([sys.executable, "-c", LOAD, str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr) < 2000 and len(done.stderr.splitlines()) == 1, done.stderr[-3000:]
    return done.stderr


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "large", "missing"])
def test_a_kubeconfig_that_is_not_a_regular_file_of_limited_size(tmp_path: Path, kind: str) -> None:
    assert listed(special(tmp_path, kind)).startswith("stepset: kubeconfig ")


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "large", "missing"])
@pytest.mark.parametrize("field", ["certificate-authority", "client-certificate", "client-key", "tokenFile"])
def test_a_file_that_a_kubeconfig_names(tmp_path: Path, field: str, kind: str) -> None:
    named = {field: special(tmp_path, kind).name}
    of_cluster = field == "certificate-authority"
    config = written(tmp_path / "config", named if of_cluster else {}, {} if of_cluster else named)
    assert f"kubeconfig {config}: {field}: {tmp_path / named[field]}: " in listed(config)


def test_one_of_several_kubeconfigs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = written(tmp_path / "config", {}, {"token": "t"}), special(tmp_path, "pipe")
    monkeypatch.setenv("KUBECONFIG", f"{good}{os.pathsep}{bad}")
    with pytest.raises(BadInputError, match=f"kubeconfig {bad}: .*not a regular file"):
        load_into(client.Configuration(), None, None, "python")


def with_plugin(directory: Path, program: str) -> Path:
    path = directory / "plugin.py"
    path.write_text(program)
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(path)]}
    return written(directory / "config", {}, {"exec": exec_})


VALID = """\
import json, os, sys
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] + os.getcwd()}}))
"""


def test_a_plugin_provides_the_token(tmp_path: Path) -> None:
    configuration = client.Configuration()
    load_into(configuration, str(with_plugin(tmp_path, VALID)), None, "python")
    assert configuration.api_key == {"BearerToken": f"Bearer ExecCredential{tmp_path}"}


PLUGINS = {
    "control sequences": "import sys; sys.exit('\\x1b]52;c;aGk=\\x07\\x1b[2Jnot logged in\\n' * 3)",
    "many errors": "import sys; [sys.stderr.write('not logged in ' * 10000) for _ in range(500)]; sys.exit(1)",
    "endless output": "while True: print('x' * 65536)",
    "no JSON": "print('hello')",
    "another type": "print('[]')",
    "deep JSON": "print('[' * 100000)",
    "no credentials": VALID.replace('"token"', '"other"'),
    "a signal": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("program", PLUGINS)
def test_a_plugin_that_fails_gives_one_line(
    tmp_path: Path, program: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    text = refused(with_plugin(tmp_path, PLUGINS[program]))
    assert "the credential plugin of the kubeconfig failed: " in text
    assert not caplog.records and capfd.readouterr() == ("", "")


def test_a_plugin_that_hangs_ends_at_the_deadline_although_its_child_keeps_the_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepset.backends.kubernetes.api.plugins.DEADLINE", 1.0)
    hangs = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(30)'])"
    began = time.monotonic()
    assert "did not end within 1 s" in refused(with_plugin(tmp_path, hangs))
    assert time.monotonic() - began < 25


def test_a_plugin_that_does_not_exist(tmp_path: Path) -> None:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./no-such-plugin"}
    assert "no-such-plugin: cannot be started" in refused(written(tmp_path / "config", {}, {"exec": exec_}))


def test_the_errors_of_a_plugin_reach_a_terminal_without_control_sequences(tmp_path: Path) -> None:
    config, shown = with_plugin(tmp_path, PLUGINS["control sequences"]), tmp_path / "typescript"
    code = f"import sys; from stepset.cli import main\nmain(['list', '--backend=kubernetes', '--kubeconfig={config}'])"
    (tmp_path / "list.py").write_text(code)
    subprocess.run(
        ["script", "-qec", f"{sys.executable} {tmp_path / 'list.py'}", str(shown)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    found = shown.read_bytes()
    assert b"not logged in" in found
    assert b"\x1b]52" not in found and b"\x1b[2J" not in found
