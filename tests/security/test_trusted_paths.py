"""No other user can replace a directory of a local run: each directory above stepset's files is checked."""

from __future__ import annotations

import json
import os
import pwd
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepset.backends.local.net import scratch_directory
from stepset.backends.local.requirements import prepare_requirements
from stepset.backends.local.runs.store import RunStore
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.sources.requirements import Requirements
from stepset.spec import parse_job
from stepset.trusted_path import check_path
from tests.cli.conftest import STEPSET
from tests.security.other_users import PYTHON, program

pytestmark = pytest.mark.local

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of other users")
OTHER = 65533
"""The uid of another user."""
ATTACKER = """
import os, sys, time
from pathlib import Path

def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""

home, marker = map(Path, sys.argv[1:])
print("ready", flush=True)
while True:
    words = [word for line in Path("/proc").glob("[0-9]*/cmdline") for word in read(line).split(b"\\0")]
    found = [Path(os.fsdecode(word)) for word in words if word.startswith(os.fsencode(home / "runs") + b"/")]
    if found:
        break
run = home / "runs" / found[0].relative_to(home).parts[1]
os.rename(home / "runs", home / "moved")
(run / "code").mkdir(parents=True)
for name in ("pods", "ranks", "files", "lock", "cancel", "state.json", "supervisor.json", "job.json", "origin.json"):
    (run / name).symlink_to(home / "moved" / run.name / name)
(run / "code" / "stepset_main.py").write_text(f"open({str(marker)!r}, 'w').write('attacked')\\n")
time.sleep(60)
"""
LOADER = "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1])); "


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can enter, unlike the directories of pytest."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def stepset(*words: str, home: object, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "STEPSET_HOME": str(home), **env}
    return subprocess.run([STEPSET, *words], env=environ, text=True, capture_output=True, timeout=60)


def foreign_group() -> int:
    """Returns the gid of a group that another account of this machine is a member of."""
    found = (each.pw_gid for each in pwd.getpwall() if each.pw_uid not in (0, os.geteuid()) and each.pw_gid != 0)
    return next(found, 1)


def make(path: Path, mode: int, owner: int = -1, group: int = -1) -> Path:
    path.mkdir(parents=True)
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def grant(path: Path, user: int) -> None:
    """Adds an access control list to a directory, which permits writing to one user (Linux, posix_acl_xattr.h)."""
    rows = ((0x01, 7, -1), (0x02, 7, user), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, who & 0xFFFFFFFF) for tag, bits, who in rows)
    os.setxattr(path, "system.posix_acl_access", data)


def linked(link: Path, target: Path, owner: int = -1) -> Path:
    link.symlink_to(target)
    os.chown(link, owner, -1, follow_symlinks=False)
    return link


BAD: dict[str, Callable[[Path], object]] = {
    "of another user": lambda at: make(at / "a", 0o755, OTHER) / "home",
    "of another user, and writable": lambda at: make(at / "a", 0o777, OTHER) / "home",
    "of another user, with the sticky bit": lambda at: make(at / "a", 0o1777, OTHER) / "home",
    "of another user, further up": lambda at: make(make(at / "a", 0o755, OTHER) / "b" / "c", 0o700) / "home",
    "of another user, itself": lambda at: make(at / "a", 0o700, OTHER),
    "of another user, the directory of runs": lambda at: make(at / "a" / "runs", 0o777, OTHER).parent,
    "a link of another user": lambda at: linked(make(at / "a", 0o1777) / "b", make(at / "c", 0o700), OTHER),
    "a link in a directory of another": lambda at: linked(make(at / "a", 0o755, OTHER) / "b", make(at / "c", 0o700)),
    "a link to a directory of another user": lambda at: linked(at / "a", make(at / "b", 0o755, OTHER)) / "home",
    "a relative link": lambda at: linked(at / "a", Path(make(at / "b", 0o755, OTHER).name)) / "home",
    "with ..": lambda at: make(at / "a", 0o755, OTHER) / "x" / ".." / ".." / "a" / "home",
    "relative": lambda at: os.path.relpath(make(at / "a", 0o755, OTHER) / "home"),
}  # fmt: skip
OPEN: dict[str, Callable[[Path], object]] = {
    "writable by every user": lambda at: make(at / "a", 0o777) / "home",
    "writable by every user, itself": lambda at: make(at / "a", 0o777),
    "a link to a writable directory": lambda at: linked(at / "a", make(at / "b", 0o777)),
}


def refused(done: subprocess.CompletedProcess[str], variable: str = "STEPSET_HOME") -> None:
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done
    assert "another user could replace the files of stepset" in done.stderr
    assert f"set {variable} to a directory that only user {os.geteuid()} can write to" in done.stderr


@ROOT
def test_another_user_cannot_replace_the_program_of_a_starting_run(place: Path) -> None:
    home, marker = make(place / "home", 0o777, OTHER), place / "marker"
    job = {"name": "f", "framework": "plain", "function": "def main():\n    print(1)\n"}
    (place / "job.json").write_text(json.dumps(job))
    words = [PYTHON, "-c", LOADER + "del sys.argv[1]\n" + ATTACKER, str(OTHER), str(home), str(marker)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "ready\n"
            done = stepset("run", str(place / "job.json"), home=home)
        finally:
            attacker.kill()
    assert not marker.exists()
    refused(done)
    assert list(home.iterdir()) == []


@ROOT
@pytest.mark.parametrize("kind", BAD)
def test_a_directory_of_another_user_above_the_runs_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(place)
    home = BAD[kind](place)
    before = sorted(place.rglob("*"))
    refused(stepset("run", "--command", "--checkpoint-dir", str(place / "saved"), "--", "true", home=home))
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("kind", OPEN)
def test_a_writable_directory_above_the_runs_is_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    home = OPEN[kind](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = stepset("run", "--command", "--", "true", home=home)
    refused(done)
    assert sorted(tmp_path.rglob("*")) == before
    found = next(each for each in (tmp_path / "a", tmp_path / "b") if stat.S_IMODE(each.lstat().st_mode) == 0o777
                 and not each.is_symlink())  # fmt: skip
    command = done.stderr.partition("; run ")[2].partition(", or ")[0]
    assert command == f"chmod go-w {found}"
    subprocess.run(command, shell=True, check=True)
    assert stepset("run", "--command", "--", "true", home=home).returncode == 0


@ROOT
def test_a_group_that_other_accounts_are_members_of_is_refused(place: Path) -> None:
    home = make(place / "a", 0o775, group=foreign_group()) / "home"
    refused(stepset("run", "--command", "--", "true", home=home))


def test_an_access_control_list_that_permits_writing_is_refused(tmp_path: Path) -> None:
    home = make(tmp_path / "a", 0o755) / "home"
    try:
        grant(home.parent, OTHER)
    except OSError as error:
        pytest.skip(f"no access control lists: {error.strerror}")
    refused(stepset("run", "--command", "--", "true", home=home))


@ROOT
def test_no_command_reads_a_run_that_another_user_could_have_planted(place: Path) -> None:
    home = make(place / "home", 0o700)
    status = RunStatus("a", "a", "local", Phase.SUCCEEDED, created=1.0)
    run, lock = RunStore(home).create(status, parse_job({"command": ["true"]}))
    os.close(lock)
    commands = (
        "list",
        "status a",
        "logs a",
        "diagnose a",
        "wait a",
        "cancel a",
        "delete a --yes",
        "prune --older-than 1s --yes",
        "run --resume a",
        "exec a -- true",
    )
    for command in commands:
        os.chown(home, OTHER, OTHER)
        refused(stepset(*command.split(), home=home))
        os.chown(home, 0, 0)
        os.chown(run.path, OTHER, OTHER)  # planted while other users could write to the directory
        done = stepset(*command.split(), home=home)
        assert f"{run.path}: {run.path} belongs to user {OTHER}" in done.stderr, command
        assert "Traceback" not in done.stderr
        assert (run.path / "state.json").exists()
        os.chown(run.path, 0, 0)


@ROOT
def test_the_check_of_the_machine_reports_the_directory(place: Path) -> None:
    home = make(place / "a", 0o755, OTHER) / "home"
    done = stepset("doctor", home=home)
    assert f"problem: runs: {home}/runs: {place}/a belongs to user {OTHER}" in done.stdout


@ROOT
@pytest.mark.parametrize("kind", BAD)
def test_a_directory_for_sockets_that_another_user_could_replace_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(place)
    home = place / str(BAD[kind](place))
    existing = next(each for each in (home / "runs", home, *home.parents) if os.path.lexists(each))
    monkeypatch.setattr("tempfile.tempdir", str(existing))
    with pytest.raises(InfrastructureError, match="set TMPDIR to a directory"):
        scratch_directory()


@ROOT
def test_a_cache_of_packages_that_another_user_could_replace_is_refused(place: Path) -> None:
    cache = make(place / "a", 0o755, OTHER) / "cache"
    environ = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache)}
    with pytest.raises(InfrastructureError, match=f"{place}/a belongs to user {OTHER}.*; set XDG_CACHE_HOME"):
        prepare_requirements(Requirements(("missing-zz",)), parse_job({"command": ["true"]}), environ)


def test_a_loop_of_links_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    done = stepset("list", home=tmp_path / "a")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "Too many levels of symbolic links" in done.stderr


GOOD: dict[str, Callable[[Path], object]] = {
    "the sticky bit": lambda at: make(at / "a", 0o1777) / "home",
    "a link of this user": lambda at: linked(at / "a", make(at / "b", 0o700)) / "home",
    "links and ..": lambda at: linked(at / "a", make(at / "b" / "c", 0o700)) / ".." / "home",
    "relative": lambda at: "home",
}


@pytest.mark.parametrize("kind", GOOD)
def test_directories_that_no_other_user_can_replace_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    home = GOOD[kind](tmp_path)
    done = stepset("run", "--name", "a", "--command", "--", "true", home=home)
    assert done.returncode == 0, done.stderr
    assert stepset("status", "a", home=home).returncode == 0


def checked(path: Path, *, user: int, group: int, groups: tuple[int, ...] = ()) -> str:
    """Returns the error of `check_path` in a process of a user, or an empty string."""
    code = (
        "from pathlib import Path; from stepset.trusted_path import check_path\n"
        "check_path(Path(sys.argv[1]), 'STEPSET_HOME')"
    )
    done = subprocess.run(
        [*program(code), str(path)],
        user=user, group=group, extra_groups=groups, text=True, capture_output=True, cwd="/",
    )  # fmt: skip
    return done.stderr.strip().rpartition("\n")[2]


@ROOT
@pytest.mark.parametrize(
    ("mode", "owner", "group", "user"),
    [
        (0o775, 0, 0, (1000650000, 0)),  # OpenShift: an arbitrary uid, and the group root
        (0o2775, 0, 1000650000, (1000650000, 0, 1000650000)),  # a volume of a pod with this `fsGroup`
        (0o775, OTHER, OTHER, (OTHER, OTHER)),  # umask 002 and a private group
        (0o755, 0, foreign_group(), (OTHER, OTHER)),
        (0o1777, 0, 0, (OTHER, OTHER)),
    ],
)
def test_directories_of_groups_without_other_members_are_used(
    place: Path, mode: int, owner: int, group: int, user: tuple[int, ...]
) -> None:
    made = make(place / "a", mode, owner, group)
    assert checked(made / "home", user=user[0], group=user[1], groups=user[2:]) == ""


@ROOT
@pytest.mark.parametrize(
    ("mode", "owner", "group", "problem"),
    [
        (0o775, 50000, 0, "belongs to user 50000"),
        (0o777, 0, 0, "every user can write to"),
        (0o775, 0, foreign_group(), f"group {foreign_group()} can write to"),
        (0o1777, 50000, 0, "belongs to user 50000"),
    ],
)
def test_other_directories_of_other_users_are_refused_for_every_user(
    place: Path, mode: int, owner: int, group: int, problem: str
) -> None:
    made = make(place / "a", mode, owner, group)
    error = checked(made / "home", user=OTHER, group=OTHER, groups=(group,))
    assert problem in error
    assert str(made) in error
    assert error.endswith(f"; set STEPSET_HOME to a directory that only user {OTHER} can write to")


@ROOT
def test_files_of_root_are_trusted_in_a_user_namespace_without_root(place: Path) -> None:
    made = make(place / "a", 0o755, OTHER)
    code = (
        "from pathlib import Path; from stepset.trusted_path import check_path\n"
        f"check_path(Path({str(made)!r}), 'STEPSET_HOME')"
    )
    words = ["unshare", "--user", "--map-root-user", *program(code)]
    done = subprocess.run(words, user=OTHER, group=OTHER, extra_groups=(), text=True, capture_output=True, cwd="/")
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@ROOT
def test_a_volume_of_the_own_pod_is_used(tmp_path: Path) -> None:
    """The kubelet makes the directory of an `emptyDir` writable by every user."""
    volume = make(tmp_path / "pods" / "uid" / "volumes" / "kubernetes.io~empty-dir" / "work", 0o777)
    mounted = make(tmp_path / "mnt", 0o755)
    program = "import sys; from pathlib import Path; from stepset.trusted_path import check_path\n" + (
        f"check_path(Path({str(mounted / 'home')!r}), 'STEPSET_HOME')"
    )
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", str(volume), str(mounted), sys.executable, "-c", program]
    done = subprocess.run(words, text=True, capture_output=True)
    if done.returncode == 32 or "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    with pytest.raises(InfrastructureError, match="every user can write"):
        check_path(volume / "home", "STEPSET_HOME")
