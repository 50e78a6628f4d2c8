"""The preparation before the command starts: files, code, variables; errors of a config."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.launch import expand
from tests.agent.pods import AGENT, Ended, Pod


def test_variables_are_filled_in_for_each_process(any_pod: Pod) -> None:
    names = {"RANK": "{rank}", "LOCAL_RANK": "{local_rank}", "CONF": '{"node": {node_rank}, "is_host": {first}}'}
    ended = any_pod.run(
        "/bin/sh", "-c", "echo $RANK $LOCAL_RANK $CONF", processes=2, process_env=names,
        env={"STEPSET_NODE_RANK": "3"},
    )  # fmt: skip
    assert ended.lines("rank 6") == [b'6 0 {"node": 3, "is_host": 0}']
    assert ended.lines("rank 7") == [b'7 1 {"node": 3, "is_host": 0}']


def test_the_first_pod_gets_is_host_1(pod: Pod) -> None:
    ended = pod.run("/bin/sh", "-c", "echo $A", processes=1, process_env={"A": "is_host={first}"})
    assert ended.lines("rank 0") == [b"is_host=1"]


def test_output_is_unbuffered_unless_the_job_sets_it(pod: Pod) -> None:
    assert pod.run_ranks("echo $PYTHONUNBUFFERED").lines("rank 0") == [b"1"]
    assert pod.run_ranks("echo $PYTHONUNBUFFERED", env={"PYTHONUNBUFFERED": "0"}).lines("rank 0") == [b"0"]
    assert pod.run_launched("echo $PYTHONUNBUFFERED").lines("rank 0") == [b"1"]


@pytest.mark.parametrize("run", [Pod.run_ranks, Pod.run_launched])
@pytest.mark.parametrize("value", ["0", ""])
def test_pythons_fault_handler_is_enabled_unless_the_job_sets_it(
    any_pod: Pod, run: Callable[..., Ended], value: str
) -> None:
    assert run(any_pod, "echo is=$PYTHONFAULTHANDLER").lines("rank 0") == [b"is=1"]
    ended = run(any_pod, "echo is=$PYTHONFAULTHANDLER", env={"PYTHONFAULTHANDLER": value})
    assert ended.lines("rank 0") == [f"is={value}".encode()]


@pytest.mark.parametrize("run", ["run_ranks", "run_launched"])
@pytest.mark.parametrize(
    ("attempt", "holds", "resumes"),
    [("0", True, True), ("0", False, False), ("1", False, False), ("1", True, True), ("12", True, True)],
)
def test_every_attempt_resumes_from_the_checkpoints_that_exist(
    pod: Pod, run: str, attempt: str, holds: bool, resumes: bool
) -> None:
    checkpoints = pod.directory / "checkpoints"
    checkpoints.mkdir()
    if holds:
        (checkpoints / "last.pt").touch()
    env = {"STEPSET_ATTEMPT": attempt, "STEPSET_CHECKPOINT_DIR": str(checkpoints)}
    ended = getattr(pod, run)("echo ${STEPSET_RESUME_FROM-nothing}", env=env)
    assert ended.lines("rank 0") == [str(checkpoints).encode() if resumes else b"nothing"]
    reported = [event["text"] for event in ended.events("resuming")]
    assert reported == ([str(checkpoints / "last.pt")] if resumes else [])


@pytest.mark.parametrize("run", ["run_ranks", "run_launched"])
@pytest.mark.parametrize(("own", "counted"), [(None, "2"), ("0", "2"), ("3", "5")])
def test_a_run_that_continues_an_earlier_run_adds_its_restarts_and_resumes(
    pod: Pod, run: str, own: str | None, counted: str
) -> None:
    (pod.directory / "checkpoint").touch()
    env = {"STEPSET_CHECKPOINT_DIR": str(pod.directory), **({"STEPSET_ATTEMPT": own} if own is not None else {})}
    ended = getattr(pod, run)("echo $STEPSET_ATTEMPT $STEPSET_RESUME_FROM", env=env, attempt=2)
    assert ended.lines("rank 0") == [f"{counted} {pod.directory}".encode()]


def test_a_rank_that_its_launcher_has_restarted_resumes_too(pod: Pod) -> None:
    (pod.directory / "checkpoint").touch()
    env = {"STEPSET_ATTEMPT": "0", "STEPSET_CHECKPOINT_DIR": str(pod.directory), "TORCHELASTIC_RESTART_COUNT": "1"}
    assert pod.run_launched("echo $STEPSET_RESUME_FROM", env=env).lines("rank 0") == [str(pod.directory).encode()]


def test_only_the_agent_has_the_lifeline(pod: Pod) -> None:
    with pod.start("/bin/sh", "-c", "echo ${STEPSET_LIFELINE-none}; cat", processes=1, lifeline=True) as running:
        assert running.wait_for_line(b"[rank 0]") == b"[rank 0] none\n"


def test_files_are_copied_with_the_modes_they_need(pod: Pod) -> None:
    home = pod.directory / "home"
    (pod.directory / "key").write_text("secret")
    files = [
        {"source": str(pod.directory / "key"), "path": "~/.ssh/id_rsa", "mode": "0600"},
        {"source": str(pod.directory / "key"), "path": str(home / "plain")},
    ]
    for _ in range(2):  # a second start, as after a restart of the container
        ended = pod.run_ranks('cd; stat -c "%a %n" .ssh .ssh/id_rsa plain', files=files, env={"HOME": str(home)})
        assert ended.lines("rank 0") == [b"700 .ssh", b"600 .ssh/id_rsa", b"644 plain"]
    assert (home / ".ssh/id_rsa").read_text() == "secret"


def test_code_is_unpacked_where_the_command_starts(any_pod: Pod) -> None:
    archive = any_pod.directory / "code.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("package/train.sh")
        info.size, info.mode = 8, 0o755
        tar.addfile(info, io.BytesIO(b"echo hi\n"))
    code = str(any_pod.directory / "code")
    ended = any_pod.run_ranks("pwd; . package/train.sh", code_archive=str(archive), code_dir=code, work_dir=code)
    assert ended.lines("rank 0") == [code.encode(), b"hi"]


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../outside", tarfile.REGTYPE, ""),
        ("a/../../outside", tarfile.REGTYPE, ""),
        ("within", tarfile.SYMTYPE, ".."),
        ("within", tarfile.SYMTYPE, "/etc"),
        ("within", tarfile.LNKTYPE, "../outside"),
    ],
)
def test_an_archive_cannot_write_outside_its_directory(any_pod: Pod, name: str, kind: bytes, link: str) -> None:
    archive = any_pod.directory / "code.tar.gz"
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(info)
    code = any_pod.directory / "code"
    ended = any_pod.run_ranks("true", code_archive=str(archive), code_dir=str(code))
    assert (ended.exit_code, ended.verdict["kind"]) == (73, "Infrastructure")
    assert not (any_pod.directory / "outside").exists()
    assert not list(code.iterdir())


def test_a_link_within_an_archive_stays_a_link(any_pod: Pod) -> None:
    archive, code = any_pod.directory / "code.tar.gz", str(any_pod.directory / "code")
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("data/real")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"hi"))
        info = tarfile.TarInfo("package/link")
        info.type, info.linkname = tarfile.SYMTYPE, "../data/real"
        tar.addfile(info)
    ended = any_pod.run_ranks(
        "cat package/link; readlink package/link", code_archive=str(archive), work_dir=code, code_dir=code
    )
    assert ended.lines("rank 0") == [b"hi../data/real"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"code_archive": "/nonexistent.tgz", "code_dir": "/tmp"}, "cannot unpack /nonexistent.tgz"),
        ({"work_dir": "/nonexistent"}, "/nonexistent, the working directory of the command, is not a directory"),
        ({"files": [{"source": "/nonexistent", "path": "/tmp/x"}]}, "cannot copy /nonexistent to /tmp/x: No such file"),
        ({"files": [{"source": "/dev/null", "path": "/tmp/x", "mode": 600}]}, "an octal mode"),
        ({"peers": [{"pattern": "a"}]}, "needs pattern and count"),
        ({"dir": "/proc/self/nothing"}, "cannot use /proc/self/nothing"),
        ({"version": 2}, "version is 2, not 1"),
        ({"dir": None}, "dir is missing"),
        ({"proceses": 2}, "proceses: unknown key"),
        ({"processes": "2"}, "processes: '2' is of the wrong type"),
        ({"serve": "/tmp/socket"}, "serve takes no command"),
    ],
)
def test_a_failed_setup_is_an_infrastructure_failure_with_its_cause(
    pod: Pod, config: dict[str, Any], message: str
) -> None:
    ended = pod.run("true", **{"processes": 1, **config})
    assert ended.exit_code == 73
    assert ended.event("failed")["kind"] == "Infrastructure"
    assert message in ended.event("failed")["error"]
    assert ended.err == b""


def test_a_missing_or_invalid_config_is_an_infrastructure_failure(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    for name, message in (("none.json", "No such file"), ("bad.json", "not JSON")):
        ended = subprocess.run([sys.executable, AGENT, "run", tmp_path / name, "--", "true"], capture_output=True)
        assert ended.returncode == 73
        failed = json.loads(ended.stdout.split(b"] ", 1)[1])
        assert message in failed["error"]


@pytest.mark.parametrize("words", [[], ["walk"], ["run"], ["run", "a.json", "true"], ["rank", "true"], ["rsh", "/tmp"]])
def test_an_invalid_command_line_shows_the_usage(words: list[str]) -> None:
    ended = subprocess.run([sys.executable, AGENT, *words], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "usage: agent.py run CONFIG.json" in ended.stderr


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$$", "$"),
    ],
)
def test_variables_in_arguments_are_expanded_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded
