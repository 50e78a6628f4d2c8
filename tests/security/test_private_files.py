"""The files of a local run belong to their owner, whatever the umask, and nothing planted by others is followed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stepset.backends.local.launch import LocalHandle
from stepset.backends.local.net import scratch_directory
from stepset.backends.local.runs.store import RunStore
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from tests.cli.conftest import STEPSET

pytestmark = pytest.mark.local

SNAPSHOT = """
import contextlib, json, os, pathlib, sys, time
os.umask(0o077)  # the files of the script are its own affair
rank = next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "RANK", "STEPSET_NODE_RANK") if name in os.environ)
print(rank, flush=True)
if rank == "0":
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"a": 1}, file)
    places = [pathlib.Path(os.environ[name]) for name in ("STEPSET_HOME", "TMPDIR")]
    deadline = time.monotonic() + 60
    while not any(places[0].glob("runs/*/ranks/rank-0.log")) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = [path for place in places for path in (place, *place.rglob("*"))]
    library = ("torchelastic", "ompi.", "prte.", "pmix")  # in directories that only this user can enter
    kinds = {}
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # stepset has replaced the file meanwhile
            if not any(word in str(path) for word in library):
                kinds[str(path)] = path.lstat().st_mode
    pathlib.Path(sys.argv[1]).write_text(json.dumps(kinds))
"""
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of other users")
OTHER = 4321
"""The uid of another user."""


def stepset(home: Path, *words: object, umask: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "STEPSET_HOME": str(home), **env}
    argv = [str(word) for word in (STEPSET, *words)]
    return subprocess.run(argv, env=environ, text=True, capture_output=True, timeout=120, umask=umask)


def modes(directory: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mode for path in (directory, *directory.rglob("*"))}


def too_open(modes: dict[str, int]) -> list[str]:
    return [f"{stat.filemode(mode)} {path}" for path, mode in modes.items() if mode & 0o077 and not stat.S_ISLNK(mode)]


@pytest.mark.parametrize("framework", ["torch", "plain", "mpi"])
def test_no_other_user_can_read_a_file_of_a_run_during_and_after_it(tmp_path: Path, framework: str) -> None:
    if framework == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    script, seen, home, scratch = (tmp_path / name for name in ("train.py", "seen.json", "home", "scratch"))
    script.write_text(SNAPSHOT)
    scratch.mkdir(mode=0o700)
    done = stepset(home, "run", script, "--framework", framework, "--nodes", 2, "--", seen, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    during = json.loads(seen.read_text())
    assert {"state.json", "log", "config.json", "out", "rank-0.log", "result"} <= {Path(path).name for path in during}
    assert too_open(during) == []
    assert too_open(modes(home)) == []


def test_the_code_of_a_function_is_private(tmp_path: Path) -> None:
    job = {"name": "f", "framework": "plain", "function": "def main():\n    print(1)\n"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = stepset(tmp_path / "home", "run", tmp_path / "job.json")
    assert done.returncode == 0, done.stderr
    assert too_open(modes(tmp_path / "home")) == []


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_planted_scratch_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    place = tmp_path / f"stepset-{os.geteuid()}"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if planted == "link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.write_text("")
    with pytest.raises(InfrastructureError, match="set TMPDIR"):
        scratch_directory()


def test_a_scratch_directory_that_others_can_write_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch_directory().chmod(0o777)
    assert scratch_directory().stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    """The script, as any process of this user, can replace files of its run; root's run in a user's directory, too."""
    victim = tmp_path / "victim"
    victim.write_text("untouched\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "(run,) = pathlib.Path(os.environ['STEPSET_HOME'], 'runs').glob('train-*')\n"
        "for name in ('ranks/rank-0.log', 'log.parts', '.state.json.new'):\n"
        "    (run / name).unlink(missing_ok=True)\n"
        "    (run / name).symlink_to(sys.argv[1])\n"
        "print('x' * 3_000_000, flush=True)\n"
    )
    done = stepset(tmp_path / "home", "run", script, "--framework", "plain", "--", victim)
    assert "Traceback" not in done.stderr
    assert victim.read_text() == "untouched\n"


@pytest.mark.parametrize("kind", ["fifo", "device", "link"])
def test_a_log_that_is_no_regular_file_is_one_error(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    stepset(home, "run", "--name", "a", "--command", "--", "true")
    (run,) = (home / "runs").iterdir()
    (run / "log").unlink()
    if kind == "fifo":
        os.mkfifo(run / "log")
    else:
        (run / "log").symlink_to("/dev/zero" if kind == "device" else tmp_path / "none")
    done = stepset(home, "logs", run.name)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr


@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_what_a_training_puts_in_place_of_the_file_of_requests_is_no_request(tmp_path: Path, kind: str) -> None:
    status = RunStatus("a", "a", "local", Phase.RUNNING, created=time.time())
    run, lock = RunStore(tmp_path / "home").create(status, parse_job({"command": ["true"]}))
    place = run.path / "cancel"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to(__file__)
    assert run.cancel_requests() == 0
    done = stepset(tmp_path / "home", "cancel", "a")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    os.close(lock)


def test_a_large_file_of_requests_needs_no_memory(tmp_path: Path) -> None:
    status = RunStatus("a", "a", "local", Phase.RUNNING, created=time.time())
    run, lock = RunStore(tmp_path / "home").create(status, parse_job({"command": ["true"]}))
    with (run.path / "cancel").open("wb") as file:
        file.truncate(1 << 24)
    assert LocalHandle(run).cancel_requests() == ["", ""]
    os.close(lock)


@ROOT
@pytest.mark.parametrize("exists", [True, False])
def test_root_by_sudo_leaves_nothing_in_the_directory_of_the_user(tmp_path: Path, exists: bool) -> None:
    home = tmp_path / "home" / ".local/state/stepset"
    (home / "runs" if exists else tmp_path / "home").mkdir(parents=True)
    for each in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        os.chown(each, OTHER, OTHER)
    before = sorted((tmp_path / "home").rglob("*"))
    done = stepset(home, "run", "--command", "--", "true", SUDO_UID=str(OTHER))
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "sudo -H" in done.stderr
    assert sorted((tmp_path / "home").rglob("*")) == before


@ROOT
def test_root_by_sudo_uses_no_directory_of_root_inside_one_of_the_user(tmp_path: Path) -> None:
    """The user could rename the directory of root, and put another one in its place."""
    home = tmp_path / "home" / "state"
    (home / "runs").mkdir(parents=True)
    os.chown(tmp_path / "home", OTHER, OTHER)
    done = stepset(home, "run", "--command", "--", "true", SUDO_UID=str(OTHER))
    assert (done.returncode, list((home / "runs").iterdir())) == (3, []), done.stderr
    assert "sudo -H" in done.stderr


@ROOT
def test_a_run_by_sudo_in_a_directory_of_root_is_private(tmp_path: Path) -> None:
    done = stepset(tmp_path / "home", "run", "--command", "--", "true", SUDO_UID=str(OTHER))
    assert done.returncode == 0, done.stderr
    found = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert {path.lstat().st_uid for path in found} == {0}
    assert too_open(modes(tmp_path / "home")) == []


@ROOT
def test_a_directory_of_another_user_is_refused() -> None:
    as_other = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
    program = (
        "from pathlib import Path; import sys; from stepset.backends.local.runs.store import RunStore\n"
        "from stepset.run_status import RunStatus; from stepset.spec import parse_job\n"
        "status = RunStatus(name='a', job='a', backend='local')\n"
        "RunStore(Path(sys.argv[1])).create(status, parse_job({'command': ['true']}))\n"
    )
    with tempfile.TemporaryDirectory() as place:  # other users cannot enter the directories of pytest
        (Path(place) / "runs").mkdir()
        for each in (Path(place), Path(place) / "runs"):
            each.chmod(0o777)
        done = subprocess.run([*as_other, sys.executable, "-c", program, place], capture_output=True, text=True)
        assert list((Path(place) / "runs").iterdir()) == []
    assert f"every user can write to {place}" in done.stderr
