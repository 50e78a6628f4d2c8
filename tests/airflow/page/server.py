"""Airflow's API server in a separate process, with users who may read only the DAGs of their team."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

import httpx

from tests.airflow.harness import HOME
from tests.waiting import STARTS_WITHIN, until

USERS = {"vera": "viewer:red", "rosa": "user:red", "bert": "viewer:blue", "ada": "admin"}
"""Name -> role and team. The DAGs of the tests' bundle are the red team's."""
STEPSET_HOME = HOME / "stepset"
"""The directory of the local runs of workers, on the same machine."""


@dataclass(frozen=True)
class Server:
    """An API server.

    Args:
        address: its URL, without a path.
        process: its process.
        log: the file with its output.
    """

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> None:
        """Waits until it answers."""
        up = until(lambda: self.process.poll() is not None or self._answers(), STARTS_WITHIN)
        assert up, "the API server does not answer"
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/api/v2/version").is_success
        except httpx.TransportError:
            return False

    def token(self, user: str) -> str:
        """Logs a user in and returns the access token."""
        answer = httpx.post(f"{self.address}/auth/token", json={"username": user, "password": user})
        assert answer.is_success, answer.text
        return str(answer.json()["access_token"])

    def get(self, path: str, user: str | None = None) -> httpx.Response:
        """The server's response to a user; without a user, to a client that is not logged in."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return httpx.get(f"{self.address}{path}", headers=headers)


@contextmanager
def running_server() -> Iterator[Server]:
    """Starts an API server on the tests' database and stops it after the block; it takes long to start."""
    _make_teams()
    passwords = HOME / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "STEPSET_HOME": str(STEPSET_HOME),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{more}" for name, more in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }
    address, log = f"http://127.0.0.1:{port}", HOME / "api-server.log"
    command = [sys.executable, "-m", "airflow", "api-server", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        try:
            yield Server(address, process, log)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _make_teams() -> None:
    """Creates the teams, as `airflow teams create` does."""
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    with create_session() as session:
        for name in ("red", "blue"):
            session.merge(Team(name=name))


def give_to_red_team() -> None:
    """Assigns the tests' DAGs to the red team, as a bundle's configuration does; a DAG must have run before."""
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    with create_session() as session:
        bundle = session.get(DagBundleModel, "tests")
        assert bundle is not None
        bundle.teams = [session.get(Team, "red")]
