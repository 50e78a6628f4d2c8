"""Runs whose requirements uv really installs, from a wheel that the test builds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepset.errors import BadInputError, InfrastructureError
from stepset.requirements import PROGRAM_FILE
from stepset.run_status import Phase
from tests.local.conftest import Local
from tests.packages import MODULE, NAME, build_wheel, uv, without_index

pytestmark = pytest.mark.local

PRINT = f"import os, {MODULE}\nprint(os.environ['STEPSET_NODE_RANK'], {MODULE}.version, {MODULE}.__file__)\n"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels, from which alone uv installs; uv is on PATH."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for name, value in without_index(directory).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{uv().parent}{os.pathsep}{os.environ['PATH']}")
    return directory


def test_all_ranks_import_what_was_installed_once_beside_the_environment(local: Local, wheels: Path) -> None:
    build_wheel(wheels)
    status = local.run(PRINT, num_nodes=2, procs_per_node=1, requirements=[f"{NAME}>=1"])
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert status.notes[-1:] == (f"requirements: uv installs {NAME}==1.0",)
    (place,) = (path for path in (local.directory / "cache/stepset/requirements").iterdir() if path.is_dir())
    for rank in (0, 1):
        assert local.texts(f"rank {rank}") == [f"{rank} 1.0 {place}/{MODULE}.py"]


def test_equal_requirements_are_installed_once_for_all_runs(local: Local, wheels: Path) -> None:
    wheel = build_wheel(wheels)
    assert local.run(PRINT, requirements=[NAME]).phase is Phase.SUCCEEDED
    wheel.unlink()
    status = local.run(PRINT, requirements=[NAME])
    assert status.phase is Phase.SUCCEEDED
    assert not [note for note in status.notes if "uv installs" in note]


def test_job_and_script_are_installed_together(local: Local, wheels: Path) -> None:
    build_wheel(wheels, "1.0")
    build_wheel(wheels, "2.0")
    metadata = f'# /// script\n# dependencies = ["{NAME}<2"]\n# ///\n'
    status = local.run(metadata + PRINT, requirements=[f"{NAME}>=1"])
    assert status.phase is Phase.SUCCEEDED
    assert any("are installed together" in note for note in status.notes)
    assert local.texts("rank 0")[0].startswith("0 1.0 ")


def test_contradictory_requirements_are_an_error_of_the_requirements(local: Local, wheels: Path) -> None:
    build_wheel(wheels)
    metadata = f'# /// script\n# dependencies = ["{NAME}<2"]\n# ///\n'
    with pytest.raises(BadInputError, match=r"^requirements: uv cannot install them: .*") as caught:
        local.run(metadata + PRINT, requirements=[f"{NAME}>=2"])
    assert len(caught.value.problems) == 1
    assert not list(local.home.glob("runs/*"))


def test_an_index_that_fails_is_not_an_error_of_the_job(local: Local, wheels: Path) -> None:
    env = {"UV_OFFLINE": "0", "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    with pytest.raises(InfrastructureError, match=r"^requirements: uv cannot install them: "):
        local.run(PRINT, requirements=["missing-zz"], env=env)


class _Index(BaseHTTPRequestHandler):
    """Replies with the HTTP status that is the first part of the path."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """The address of an index that refuses all requests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("variable", "url", "status"),
    [
        ("UV_DEFAULT_INDEX", "http://{host}/401/to-ken/simple", 401),
        ("UV_DEFAULT_INDEX", "http://{host}/403/to-ken/simple/", 403),
        ("UV_DEFAULT_INDEX", "http://user:pass-word@{host}/500/to-ken/simple", 500),
        ("UV_INDEX", "own=http://{host}/500/to-ken/(a),b/simple", 500),
        ("UV_DEFAULT_INDEX", "http://{host}/200/to-ken/simple", 200),
        ("UV_DEFAULT_INDEX", "http://user:pass-word@{host}:port/to-ken/simple", None),
        ("uv.toml", "http://{host}/500/to-ken/simple", 500),
    ],
)
def test_an_error_contains_the_host_but_no_token_of_an_index(
    tmp_path: Path, index: str, variable: str, url: str, status: int | None
) -> None:
    settings, text = {"UV_NO_CONFIG": "1", "UV_HTTP_RETRIES": "0"}, url.format(host=index)
    if variable == "uv.toml":
        (tmp_path / variable).write_text(f"[[index]]\nurl = '{text}'\ndefault = true\n")
        settings = {"UV_CONFIG_FILE": str(tmp_path / variable), "UV_HTTP_RETRIES": "0"}
    else:
        settings[variable] = text
    env = {"PATH": f"{uv().parent}{os.pathsep}{os.environ['PATH']}", "UV_CACHE_DIR": str(tmp_path / "uv"), **settings}
    given = json.dumps({"requirements": ["missing-zz"], "python": ""})
    command = [sys.executable, "-I", str(PROGRAM_FILE), given, str(tmp_path / "root")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode in (72, 73)
    assert "uv cannot install them: " in done.stderr
    assert not [word for word in ("to-ken", "pass-word", "simple") if word in done.stderr], done.stderr
    assert f"http://{index}/***" in done.stderr or status is None


def test_a_broken_wheel_is_an_error_of_the_requirements(local: Local, wheels: Path) -> None:
    wheel = build_wheel(wheels)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nothing", "")
    with pytest.raises(BadInputError, match=r"^requirements: uv cannot install them: "):
        local.run(PRINT, requirements=[NAME])
    assert not [path for path in (local.directory / "cache/stepset/requirements").iterdir() if path.is_dir()]


def test_a_wheel_is_installed_from_its_url(local: Local, wheels: Path) -> None:
    url = build_wheel(wheels).as_uri()
    status = local.run(PRINT, requirements=[f"{NAME} @ {url}"])
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert local.texts("rank 0")[0].startswith("0 1.0 ")


def test_a_requirement_for_another_platform_installs_nothing(local: Local, wheels: Path) -> None:
    status = local.run("print('trained')\n", requirements=[f"{NAME}; sys_platform == 'nowhere'"])
    assert status.phase is Phase.SUCCEEDED


def test_of_processes_that_need_the_same_packages_one_installs(tmp_path: Path, wheels: Path) -> None:
    build_wheel(wheels)
    given = json.dumps({"requirements": [NAME], "python": ""})
    command = [sys.executable, "-I", str(PROGRAM_FILE), given, str(tmp_path / "root")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [(each.communicate(timeout=300), each.returncode) for each in started]
    assert {code for _, code in ends} == {0}
    assert len({out for (out, _), _ in ends}) == 1
    assert sum("uv installs" in err for (_, err), _ in ends) == 1
