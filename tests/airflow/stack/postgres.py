"""A PostgreSQL server for the tests: Debian's programs, a new directory with a socket, and no port.

airflow.py starts it. The data need not survive a power failure, so the server does not wait for the disk.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

from tests.waiting import until

_USER = "postgres"
"""The server's user if the tests run as root, which PostgreSQL refuses."""

_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=", "max_connections=200")


class NoPostgresError(Exception):
    """This machine has no PostgreSQL server."""


class Postgres:
    """A server.

    Args:
        directory: for its data and its socket; `start` creates it. The path of a socket has at most 107 characters.

    Raises:
        NoPostgresError: the package is missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._programs = programs()
        self._user = _USER if os.geteuid() == 0 else None

    @property
    def address(self) -> str:
        """The SQLAlchemy URL, for synchronous and for asynchronous engines."""
        return f"postgresql+psycopg://{self._role}@/postgres?host={self.directory}"

    def start(self) -> None:
        """Creates the data directory, starts the server and waits until it answers."""
        self.directory.mkdir(mode=0o755)
        if self._user:
            shutil.chown(self.directory, self._user)
        self._run("initdb", "--pgdata", str(self.data), "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        words = [str(self._programs / "postgres"), "-D", str(self.data), "-k", str(self.directory)]
        words += [word for setting in _SETTINGS for word in ("-c", setting)]
        with (self.directory / "log").open("wb") as log:
            self._server = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=self._user, start_new_session=True
            )
        assert until(lambda: self._ready() or self._server.poll() is not None), "the server does not answer"
        assert self._server.poll() is None, (self.directory / "log").read_text()

    def wait(self) -> None:
        """Waits until it has ended; process_supervisor.py stops it."""
        self._server.wait(60)

    def stop(self) -> None:
        """Stops the server, which closes all connections."""
        self._server.send_signal(signal.SIGINT)  # its fast shutdown
        self.wait()

    def dump(self, *options: str) -> str:
        """The content of the database, as pg_dump writes it with these options."""
        return self._run("pg_dump", "--host", str(self.directory), "--inserts", *options, "postgres")

    @property
    def _role(self) -> str:
        return self._user or pwd.getpwuid(os.geteuid()).pw_name

    def _ready(self) -> bool:
        words = [str(self._programs / "pg_isready"), "-q", "-h", str(self.directory)]
        return subprocess.run(words).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        words = [str(self._programs / program), *arguments]
        done = subprocess.run(words, capture_output=True, text=True, user=self._user, cwd=self.directory)
        assert done.returncode == 0, f"{program}: {done.stderr}"
        return done.stdout


def programs() -> Path:
    """The directory with the programs of the newest PostgreSQL server that is installed as a Debian package.

    Raises:
        NoPostgresError: none is installed.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise NoPostgresError("PostgreSQL's server is missing: install Debian's package postgresql (make system)")
    return found[-1].parent
