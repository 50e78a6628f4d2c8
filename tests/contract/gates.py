"""Starts and controls the fault-injecting proxy; writes kubeconfigs and credentials for its clients."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = {"first": 1001, "second": 1002}
"""Client certificates and their serial numbers."""


def make_certificates(directory: Path) -> None:
    """Creates an authority, the proxy's certificate and the clients' certificates, with the machine's openssl."""

    def make(name: str, *more: str) -> None:
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt", *more]
        subprocess.run(words, cwd=directory, check=True, capture_output=True)

    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
    make("ca")
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth")
    for name, serial in CERTIFICATES.items():
        make(name, *signed, "-addext", "extendedKeyUsage=clientAuth", "-set_serial", str(serial))


@dataclass
class Gate:
    """One port of the proxy, for one client.

    Args:
        control: URL of the gate in the control channel.
        port: the port where the gate listens.
        directory: the directory of the client's kubeconfig and credentials.
        certificates: the directory of the proxy's certificates.
        namespace: the namespace of the kubeconfig's context.
        user: the client's kind of credentials: `token`, `token file`, `exec` or `certificate`.

    Attributes:
        kubeconfig: the client's kubeconfig.
    """

    control: str
    port: int
    directory: Path
    certificates: Path
    namespace: str
    user: str = "token"
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        self.kubeconfig = self.directory / "gate.kubeconfig"
        self.set_credentials(self.token, "first")
        authority = base64.b64encode((self.certificates / "ca.crt").read_bytes()).decode()
        server = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "gate",
            "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "gate", "namespace": self.namespace}}],
            "clusters": [{"name": "gate", "cluster": server}],
            "users": [{"name": "gate", "user": self._user()}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.kubeconfig.chmod(0o600)

    def _user(self) -> dict[str, Any]:
        at = {name: str(self.directory / name) for name in ("token", "credential.json", "client.crt", "client.key")}
        if self.user == "token file":
            return {"tokenFile": at["token"]}
        if self.user == "certificate":
            return {"client-certificate": at["client.crt"], "client-key": at["client.key"]}
        if self.user == "exec":
            version = "client.authentication.k8s.io/v1"
            plugin = {"apiVersion": version, "command": "cat", "args": [at["credential.json"]]}
            return {"exec": {**plugin, "interactiveMode": "Never"}}
        return {"token": self.token}

    def set_credentials(self, token: str, certificate: str) -> None:
        """Replaces the credentials to which the kubeconfig refers; the gate accepts only the new ones."""
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        files = {
            "token": token.encode(),
            "credential.json": json.dumps({**credential, "status": {"token": token}}).encode(),
            "client.crt": (self.certificates / f"{certificate}.crt").read_bytes(),
            "client.key": (self.certificates / f"{certificate}.key").read_bytes(),
        }
        for name, data in files.items():
            new = self.directory / f"{name}.new"
            new.write_bytes(data)
            new.rename(self.directory / name)
        _call("PUT", f"{self.control}/credentials", {"tokens": [token], "serials": [CERTIFICATES[certificate]]})

    def renew(self) -> None:
        """Replaces all credentials; the gate refuses the previous ones from now on."""
        self.set_credentials(secrets.token_hex(16), "second")

    def fault(self, name: str, do: str, **fields: Any) -> None:
        """Starts a fault; see `proxy.rules.Rule`."""
        _call("PUT", f"{self.control}/rules/{name}", {"do": do, **fields})

    def clear(self, name: str) -> None:
        """Ends a fault."""
        _call("DELETE", f"{self.control}/rules/{name}")

    def drop(self, *on: str) -> None:
        """Aborts open connections whose last request was of these kinds; default: all."""
        _call("POST", f"{self.control}/drop", {"on": on})

    def seen(self) -> dict[str, int]:
        """The number of received requests of each kind."""
        found: dict[str, int] = _call("GET", self.control)["seen"]
        return found

    def close(self) -> None:
        """Aborts all connections and stops listening."""
        _call("DELETE", self.control)


@dataclass(frozen=True)
class Proxy:
    """The running proxy.

    Args:
        control: URL of its control channel.
        certificates: the directory of its certificates.
    """

    control: str
    certificates: Path

    @contextmanager
    def gate(self, kubeconfig: Path, directory: Path, namespace: str, user: str = "token") -> Iterator[Gate]:
        """A gate in front of the server of a kubeconfig.

        Args:
            kubeconfig: an account's kubeconfig with a token, with which requests are forwarded.
            directory: the directory of the client's files.
            namespace: the namespace of the client's context.
            user: as for Gate.
        """
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, account = config["clusters"][0]["cluster"], config["users"][0]["user"]
        settings = {
            "upstream": cluster["server"],
            "ca": base64.b64decode(cluster["certificate-authority-data"]).decode(),
            "token": account["token"],
            "tokens": [],
            "serials": [],
        }
        made = _call("POST", f"{self.control}/gates", settings)
        gate = Gate(f"{self.control}/gates/{made['gate']}", made["port"], directory, self.certificates, namespace, user)
        try:
            yield gate
        finally:
            gate.close()


@contextmanager
def running_proxy(directory: Path) -> Iterator[Proxy]:
    """Runs the proxy in a new process.

    Args:
        directory: an empty directory for its certificates.
    """
    make_certificates(directory)
    words = [sys.executable, "-m", "tests.contract.proxy", str(directory)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        try:
            yield Proxy(f"http://127.0.0.1:{port}", directory)
        finally:
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _call(method: str, address: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found
