"""`make audit`: every package of every lock file is audited, or the audit fails; with a local service of OSV's API."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tools.audit import AuditError, Package, audit, read_lock, rounds

from tests.tools.release import ROOT, TOOLS

HASH = "    --hash=sha256:" + "0" * 64
VULNERABLE = {
    "id": "PYSEC-2099-1",
    "summary": "a hole",
    "affected": [
        {
            "package": {"name": "holed", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


class Osv(BaseHTTPRequestHandler):
    """OSV's query API (https://google.github.io/osv.dev/post-v1-query): holed 1.0 has a hole, lost is an error."""

    asked: list[tuple[str, str]]

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = query["package"]["name"], query["version"]
        self.asked.append((name, version))
        answer: dict[str, Any] = {"vulns": [VULNERABLE]} if (name, version) == ("holed", "1.0") else {}
        body = json.dumps(answer).encode()
        self.send_response(404 if name == "lost" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def service() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The URL of the service, and the packages that it was asked for."""
    asked: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Osv,), {"asked": asked}))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query", asked
    server.shutdown()
    server.server_close()


def lock(directory: Path, name: str, *requirements: str) -> Path:
    path = directory / f"{name}.txt"
    path.write_text("".join(f"{each} \\\n{HASH}\n" for each in requirements))
    return path


def run(*words: object, service: str) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / "python", ROOT / "tools/audit.py", "--service", service, *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)


@pytest.mark.local
@pytest.mark.usefixtures("tools")
class TestAudit:
    def test_packages_without_a_known_vulnerability_pass(self, tmp_path: Path, service: Any) -> None:
        one, two = lock(tmp_path, "one", "fine==1.0", "holed==1.1"), lock(tmp_path, "two", "fine==2.0", "Also.Fine==3")
        done = run(one, two, service=service[0])
        assert done.returncode == 0, done.stderr
        assert done.stdout == "4 packages of 2 lock files: none with known vulnerabilities\n"
        assert sorted(service[1]) == [("also-fine", "3"), ("fine", "1.0"), ("fine", "2.0"), ("holed", "1.1")]

    def test_a_vulnerable_package_fails_and_is_named_with_its_lock_file(self, tmp_path: Path, service: Any) -> None:
        path = lock(tmp_path, "one", "fine==1.0", "holed==1.0 ; sys_platform == 'win32'")
        done = run(path, service=service[0])
        assert (done.returncode, done.stderr) == (1, f"audit: holed==1.0 ({path}): PYSEC-2099-1, fixed in 1.1\n")

    def test_a_package_that_the_service_cannot_judge_fails(self, tmp_path: Path, service: Any) -> None:
        done = run(lock(tmp_path, "one", "fine==1.0", "lost==1.0"), service=service[0])
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert service[0] in done.stderr

    def test_an_invalid_version_fails(self, tmp_path: Path, service: Any) -> None:
        done = run(lock(tmp_path, "one", "fine==abc.def"), service=service[0])
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)

    def test_an_unreachable_service_is_one_line(self, tmp_path: Path) -> None:
        done = run(lock(tmp_path, "one", "fine==1.0"), service="http://127.0.0.1:9/v1/query")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "http://127.0.0.1:9/v1/query is unreachable" in done.stderr

    def test_a_report_without_a_package_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = tmp_path / "python"
        fake.write_text("""#!/bin/sh\necho '{"dependencies": [{"name": "fine", "version": "1", "vulns": []}]}'\n""")
        fake.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(fake))
        with pytest.raises(AuditError, match=r"left-out==1 could not be audited: is missing"):
            audit([Package("fine", "1"), Package("left-out", "1")], "http://127.0.0.1:9", 1)


def test_versions_of_one_package_are_audited_in_different_rounds() -> None:
    packages = [Package("a", "1"), Package("a", "2"), Package("b", "1"), Package("a", "3")]
    assert [[each.requirement for each in part] for part in rounds(packages)] == [["a==1", "b==1"], ["a==2"], ["a==3"]]


@pytest.mark.parametrize("line", ["a @ https://example.org/a.whl", "a>=1", "-e .", "a", "--index-url x", "git+x"])
def test_a_line_that_pins_no_version_is_an_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(AuditError, match="line 1 cannot be audited"):
        list(read_lock(path))


@pytest.mark.parametrize("path", sorted((ROOT / "locks").glob("*.txt")), ids=lambda path: path.stem)
def test_every_package_of_the_lock_files_is_read(path: Path) -> None:
    assert len(list(read_lock(path))) == path.read_text().count("==") - path.read_text().count(" == '")
