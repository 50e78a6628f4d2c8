"""MPI's ssh connects only to servers with the host key of the run: another server gets no command."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.setup import copy_files
from stepset.backends.kubernetes.submit.generated import with_keys
from stepset.targets.names import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY
from tests.targets.making import rendered
from tests.waiting import until

SSHD = Path("/usr/sbin/sshd")
pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(not SSHD.exists(), reason="needs an ssh server: make system"),
]


class Pod:
    """The ssh files of a pod, in a directory of this machine.

    Args:
        directory: an empty directory.
        objects: the rendered objects of the run.
        keys: the data of its Secret.
    """

    def __init__(self, directory: Path, objects: list[dict[str, Any]], keys: dict[str, str]) -> None:
        self.directory = directory
        (directory / "secret").mkdir(parents=True)
        for name, key in (
            ("id_rsa", SSH_PRIVATE_KEY),
            ("id_rsa.pub", SSH_PUBLIC_KEY),
            ("authorized_keys", SSH_PUBLIC_KEY),
            *([("known_hosts", "ssh-known-hosts")] if _mounts_known_hosts(objects) else []),
        ):
            (directory / "secret" / name).write_text(keys[key])
        (directory / "secret" / "id_rsa").chmod(0o600)
        for agent in (each["data"] for each in objects if "node.json" in each.get("data", {})):
            files = json.loads(self._local(agent["node.json"]))["files"]
            copy_files([each for each in files if "/secret/" in each["source"]])
        (texts,) = (each["data"] for each in objects if "ssh_config" in each.get("data", {}))
        self._texts = {name: self._local(text) for name, text in texts.items()}

    def _local(self, text: str) -> str:
        text = text.replace("/stepset/run/ssh", str(self.directory / "agent"))
        return text.replace("/home/mpiuser/.ssh", str(self.directory / "secret"))

    def _file(self, name: str, port: int) -> Path:
        path = self.directory / name
        path.write_text(self._texts[name].replace("Port 2222", f"Port {port}"))
        return path

    @contextmanager
    def serving(self, port: int) -> Iterator[None]:
        """Runs the pod's ssh server."""
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [SSHD, "-De", "-o", "ListenAddress=127.0.0.1", "-f", self._file("sshd_config", port)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                assert server.stderr is not None
                assert until(lambda: "listening" in server.stderr.readline())  # type: ignore[union-attr]
                yield
            finally:
                server.terminate()

    def run(self, port: int) -> subprocess.CompletedProcess[str]:
        """Runs a command by the pod's ssh client."""
        command = ["ssh", "-F", self._file("ssh_config", port), "127.0.0.1", "echo reached"]
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=60
        )


def _mounts_known_hosts(objects: list[dict[str, Any]]) -> bool:
    return '"path": "known_hosts"' in json.dumps([each for each in objects if each["kind"] == "JobSet"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def secret(objects: list[dict[str, Any]]) -> dict[str, str]:
    """The data of the run's Secret, with new keys."""
    (found,) = (with_keys(each)["stringData"] for each in objects if each["kind"] == "Secret")
    return dict(found)


@pytest.mark.parametrize("agent", [True, False])
@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
def test_a_server_without_the_run_s_host_key_is_refused(tmp_path: Path, implementation: str, agent: bool) -> None:
    program = {} if agent else {"command": ["./solver"]}
    objects = rendered(framework={"kind": "mpi", "implementation": implementation}, num_nodes=2, **program)
    assert any("node.json" in each.get("data", {}) for each in objects) is agent
    keys, others = secret(objects), secret(objects)
    pod = Pod(tmp_path / "pod", objects, keys)
    # The impostor admits the client's key but has another host key.
    impostor = Pod(tmp_path / "impostor", objects, {**others, SSH_PUBLIC_KEY: keys[SSH_PUBLIC_KEY]})
    port = free_port()
    with pod.serving(port):
        reached = pod.run(port)
    assert (reached.returncode, reached.stdout) == (0, "reached\n"), reached.stderr
    with impostor.serving(port):
        refused = pod.run(port)
    assert (refused.returncode, refused.stdout) == (255, ""), refused.stderr
    assert "verification failed" in refused.stderr
