"""Airflow's API server as a process of its own, with users who may read the DAGs of their team only."""

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

USERS = {"vera": "viewer:red", "bert": "viewer:blue", "ada": "admin"}
"""Name -> role and team. The DAGs of the tests' bundle are the red team's."""


@dataclass(frozen=True)
class Server:
    """An API server.

    Args:
        address: of it, without a path.
        process: its own.
        log: what it prints.
    """

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> None:
        """Comes back when it answers."""
        up = until(lambda: self.process.poll() is not None or self._answers(), STARTS_WITHIN)
        assert up, "the API server does not answer"
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/api/v2/version").is_success
        except httpx.TransportError:
            return False

    def token(self, user: str) -> str:
        """What a user who has logged in shows."""
        answer = httpx.post(f"{self.address}/auth/token", json={"username": user, "password": user})
        assert answer.is_success, answer.text
        return str(answer.json()["access_token"])

    def get(self, path: str, user: str | None = None) -> httpx.Response:
        """What the server answers to a user, or to somebody who has not logged in."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return httpx.get(f"{self.address}{path}", headers=headers)


@contextmanager
def running_server() -> Iterator[Server]:
    """An API server on the tests' own database, until the end of the block; it takes its time to come up."""
    _make_teams()
    passwords = HOME / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "AIRFLOW__CORE__MULTI_TEAM": "True",
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
    """What `airflow teams create` does."""
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    with create_session() as session:
        for name in ("red", "blue"):
            session.merge(Team(name=name))


def give_to_red_team() -> None:
    """Makes the tests' DAGs the red team's, as a bundle's configuration does; a DAG must have been run before."""
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    with create_session() as session:
        bundle = session.get(DagBundleModel, "tests")
        assert bundle is not None
        bundle.teams = [session.get(Team, "red")]
