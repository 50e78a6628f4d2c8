"""Commands about runs that another process started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.watch.present.sentences import state_line
from tests.cli.conftest import STEPSET, Cli
from tests.cli.scripts import FLAGS, processes_that_mention, write_scripts
from tests.first_hour.shell import in_terminal
from tests.waiting import until

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three runs: one that succeeded, one that failed, one with odd bytes."""
    directory = tmp_path_factory.mktemp("runs")
    write_scripts(directory)
    env = {**os.environ, "STEPSET_HOME": str(directory / "home")}
    codes = [
        subprocess.run([STEPSET, "run", f"{name}.py", *FLAGS], cwd=directory, env=env, capture_output=True).returncode
        for name in ("train", "fail", "bytes")
    ]
    assert codes == [0, 1, 0]
    return directory / "home"


@pytest.fixture
def known(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, with the home of those runs."""
    monkeypatch.setenv("STEPSET_HOME", str(home))
    return cli


@pytest.fixture
def running(cli: Cli, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of `sleep.py` that is running."""
    write_scripts(tmp_path)
    home = tmp_path / "home"
    env = {**os.environ, "STEPSET_HOME": str(home)}
    argv = [STEPSET, "run", "sleep.py", *FLAGS]
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            logs = (home / "runs").glob
            assert until(lambda: any(path.read_bytes().count(b"ready") == 4 for path in logs("*/log")))
            # The state is written a little after what the ranks print.
            assert until(lambda: "Running, 4/4 ranks running" in state_line(LocalBackend(home).status("sleep")))
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def test_status_shows_the_run_and_its_ranks(known: Cli) -> None:
    result = known("status", "train")
    assert result.code == 0
    rows = {tuple(line.split()[:4]) for line in result.out.splitlines()}
    assert {("rank", str(n)) for n in range(4)} <= {row[:2] for row in rows}
    assert any(row[:2] == ("phase", "Succeeded") for row in rows)
    assert any(line.split(maxsplit=1) == ["result", '{"world_size": 4}'] for line in result.out.splitlines())


def test_accepts_the_name_of_a_run_or_of_a_job(known: Cli) -> None:
    run = json.loads(known("status", "train", "-o", "json").out)
    assert run["job"] == "train"
    assert json.loads(known("status", run["name"], "-o", "json").out) == run


def test_status_of_a_failed_run_exits_with_0(known: Cli) -> None:
    result = known("status", "fail")
    assert result.code == 0
    assert "UserError" in result.out
    assert "exit code 1" in result.out


def test_the_commands_that_read_a_run_use_the_newest_run_without_a_name(known: Cli) -> None:
    newest = known("list", "-o", "name").out.split()[0]
    note = f"stepset: note: {newest} is the newest run; stepset list shows all runs\n"
    assert newest.startswith("bytes-")
    status = known("status", "-o", "json")
    assert (status.code, json.loads(status.out)["name"], status.err) == (0, newest, note)
    assert known("logs", "--tail", "1").out == known("logs", newest, "--tail", "1").out
    followed = known("logs", "-f")
    assert (followed.out, followed.err.startswith(note)) == (known("logs", newest).out, True)
    assert known("diagnose").errors[-1].startswith(f"stepset: run {newest} succeeded in ")


@pytest.mark.parametrize("command", ["status", "logs", "diagnose"])
def test_without_a_run_no_name_is_bad_input(cli: Cli, tmp_path: Path, command: str) -> None:
    done = cli(command)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"stepset: there is no run in {tmp_path / 'home' / 'runs'}; start one with stepset run\n"


def test_list_shows_the_newest_run_first(known: Cli) -> None:
    result = known("list")
    jobs = [line.split()[0].rpartition("-")[0] for line in result.out.splitlines()[1:]]
    assert jobs == ["bytes", "fail", "train"]
    assert [run["job"] for run in json.loads(known("list", "-o", "json").out)["items"]] == jobs


def test_logs_are_what_the_ranks_printed(known: Cli) -> None:
    result = known("logs", "fail")
    assert {f"[rank {n}] rank {n} starts" for n in range(4)} <= set(result.out.splitlines())
    assert "[rank 3] ValueError: bad batch" in result.out.splitlines()


def test_logs_of_some_ranks(known: Cli) -> None:
    starts = [line for line in known("logs", "fail", "--ranks", "0,2-3").out.splitlines() if "starts" in line]
    assert sorted(starts) == [f"[rank {n}] rank {n} starts" for n in (0, 2, 3)]


@pytest.mark.parametrize(
    ("ranks", "error"),
    [
        ("4", "has no rank 4; it has ranks 0 to 3"),
        ("7-9", "has no rank 7; it has ranks 0 to 3"),
        ("launcher", "has no source 'launcher'; it has ranks 0 to 3"),
        ("node-1", "has no source 'node-1'; it is a pod with ranks 2,3"),
        ("rank x", "has no source 'rank x'; it has ranks 0 to 3"),
        ("0-9999999999", "'0-9999999999' is more than 100000 ranks; leave --ranks out for all"),
    ],
)
def test_logs_of_impossible_ranks_are_bad_input(known: Cli, ranks: str, error: str) -> None:
    result = known("logs", "fail", "--ranks", ranks)
    assert (result.code, result.out, len(result.errors)) == (2, "", 1)
    assert error in result.err
    assert known("logs", "fail", "--ranks", "03-9").out.startswith("[rank 3] rank 3 starts\n")


def test_raw_logs_are_the_bytes_as_they_were_printed(known: Cli, home: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    raw = subprocess.run([STEPSET, "logs", "bytes", "--raw", "--ranks", "0"], env=env, capture_output=True, check=True)
    assert raw.stdout == b"caf\xc3\xa9 \xff\xfe\n\n[rank 9] not me\n[rank0]: marked by torch\nno newline at the end\n"
    headed = subprocess.run([STEPSET, "logs", "bytes"], env=env, capture_output=True, check=True)
    assert headed.stdout.splitlines()[0] == b"[rank 0] caf\xc3\xa9 \xff\xfe"
    assert headed.stdout.splitlines()[3] == b"[rank 0] marked by torch"


def test_diagnose_shows_the_cause_and_exits_as_the_run_did(known: Cli) -> None:
    result = known("diagnose", "fail")
    assert result.code == 1
    assert any(line.startswith("  first failure rank 3, ") for line in result.errors)
    assert known("diagnose", "train").code == 0


def test_wait_for_a_run_that_is_over_exits_as_it_did(known: Cli) -> None:
    assert known("wait", "train").code == 0
    assert known("wait", "fail").code == 1


def test_cancel_reports_that_a_run_is_already_over(known: Cli) -> None:
    result = known("cancel", "train")
    assert result.code == 0
    assert result.err.endswith(" is already over: Succeeded\n")


def test_status_shows_a_run_of_another_process(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    status = json.loads(cli("status", "sleep", "-o", "json").out)
    assert status["phase"] == "Running"
    assert cli("list").out.splitlines()[1].split()[1] == "Running"
    assert cli("logs", "sleep").out.count("ready") == 4
    waited = cli("wait", "sleep", "--timeout", "1s")
    assert waited.code == 4
    assert " is not over: Running, 4/4 ranks running, " in waited.err
    diagnosed = cli("diagnose", "sleep")
    assert (diagnosed.code, len(diagnosed.errors)) == (0, 1)


def test_cancel_stops_a_run_that_another_shell_started(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    result = cli("cancel", "sleep")
    assert result.code == 0
    stopping, *_, last = result.errors
    name = stopping.split()[2]
    assert stopping == f"stepset: run {name} is stopping; stepset cancel {name} --now kills the ranks"
    assert f"run {name} was cancelled after " in last
    assert cli("cancel", "sleep").err == f"stepset: {name} is already over: Cancelled\n"
    assert running.wait(60) == 130
    assert cli("wait", "sleep").code == 130
    assert cli("logs", "sleep").out.count("saved a checkpoint") == 4


def test_cancel_stops_several_runs_before_it_waits(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    second = cli("run", "-d", "sleep.py", "--name", "second", "--procs-per-node", "1").out.strip()
    result = cli("cancel", "sleep", "second")
    assert result.code == 0
    first, other, *ends = result.errors
    assert first.startswith("stepset: run sleep-") and other.startswith(f"stepset: run {second} is stopping; ")
    assert sum(" was cancelled after " in line for line in ends) == 2
    assert running.wait(60) == 130
    assert cli("wait", "second").code == 130


def test_cancel_stops_the_runs_of_a_job_or_with_given_labels_that_are_not_over(
    cli: Cli, running: subprocess.Popen[bytes]
) -> None:
    second = cli("run", "-d", "sleep.py", "--name", "second", "--procs-per-node", "1", "--label", "a=b").out.strip()
    (name,) = set(cli("list", "-o", "name").out.split()) - {second}
    done = cli("cancel", "-l", "a=b")
    assert (done.code, name in done.err, cli("wait", second).code) == (0, False, 130)
    assert cli("cancel", "-l", "a=b").err.startswith("stepset: every run with labels a=b in ")
    declined = in_terminal([STEPSET, "cancel", "--job", "sleep"], Path(), os.environ, 80, b"\n")
    assert declined.code == 130
    assert "stepset: cancel 1 run of job sleep? [y/N] " in declined.text
    assert "stepset: cancelled nothing" in declined.text
    assert running.poll() is None
    assert cli("cancel", "--job", "sleep").code == 0
    assert running.wait(60) == 130


def test_cancel_does_not_kill_a_run_that_two_names_select(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    (name,) = cli("list", "-o", "name").out.split()
    result = cli("cancel", "sleep", name)
    assert (result.code, sum(" is stopping" in line for line in result.errors)) == (0, 1)
    assert running.wait(60) == 130
    assert cli("logs", "sleep").out.count("saved a checkpoint") == 4


def test_cancel_stops_the_other_runs_if_one_does_not_exist(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    result = cli("cancel", "nope", "sleep")
    assert result.code == 2
    assert result.errors[0].startswith("stepset: nope: ") and "no such run" in result.errors[0]
    assert any(" was cancelled after " in line for line in result.errors)
    assert running.wait(60) == 130


def test_an_interrupted_wait_states_that_the_run_continues(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    waited = cli("wait", "sleep")
    assert (waited.code, waited.err) == (130, "stepset: interrupted; the run continues\n")
    assert json.loads(cli("status", "sleep", "-o", "json").out)["phase"] == "Running"


def test_followed_logs_end_with_the_run(cli: Cli, running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    argv = [STEPSET, "logs", "-f", "sleep", "--ranks", "1"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout and follower.stderr
        assert follower.stdout.readline().startswith(b"[rank 1] ready")
        running.send_signal(signal.SIGINT)
        assert follower.stdout.read() == b"[rank 1] saved a checkpoint\n"
        assert follower.wait(60) == 0
        (end,) = follower.stderr.read().decode().splitlines()
        assert end.startswith("stepset: run sleep-") and " was cancelled after " in end


def test_followed_logs_of_a_run_that_is_over_state_how_it_ended(known: Cli) -> None:
    for flags in ((), ("--tail", "1"), ("--ranks", "3")):
        failed = known("logs", "fail", "-f", *flags)
        assert (failed.code, len(failed.errors)) == (0, 1), failed.err
        assert " failed after " in failed.err and ": UserError: rank 3 (pod node-1) exited with code 1" in failed.err
    assert " succeeded in " in known("logs", "train", "-f").err
    assert known("logs", "fail").err == ""


def test_a_run_whose_process_was_killed_is_lost(cli: Cli, running: subprocess.Popen[bytes]) -> None:
    running.kill()
    running.wait(60)
    result = cli("wait", "sleep")
    assert result.code == 3
    assert ": Lost: " in result.err
    # Its duration ends at its last update, regardless of the time of the request.
    ended = json.loads(cli("status", "sleep", "-o", "json").out)["finished"]
    assert datetime.fromisoformat(ended) <= datetime.now(UTC)
    assert json.loads(cli("status", "sleep", "-o", "json").out)["finished"] == ended


def test_cancel_of_a_lost_run_ends_its_remaining_processes(
    cli: Cli, running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ranks = [int(line.split()[-1]) for line in cli("logs", "sleep").out.splitlines()]
    agents = {int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1]) for rank in ranks}
    for pid in agents:  # an agent that hangs cannot end its ranks when stepset has ended
        os.kill(pid, signal.SIGSTOP)
    running.kill()
    running.wait(60)
    assert len(processes_that_mention(tmp_path)) == 6
    result = cli("cancel", "sleep")
    assert (result.code, result.errors[-1].endswith(" is already over: Lost")) == (0, True)
    assert until(lambda: not processes_that_mention(tmp_path))


def test_a_reader_that_stops_early_is_not_an_error(known: Cli, home: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    for words in ("list", "status train", "logs train", "schema"):
        piped = f"'{STEPSET}' {words} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", piped], env=env, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_output_that_cannot_be_written_is_an_infrastructure_error(known: Cli, home: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([STEPSET, "list"], env=env, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (
        3,
        b"stepset: the output cannot be written: No space left on device\n",
    )


def test_messages_that_cannot_be_written_do_not_change_the_exit_code(known: Cli, home: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    with Path("/dev/full").open("wb") as full:
        for argv, code in ((["diagnose", "train"], 0), (["diagnose", "fail"], 1), (["diagnose", "nope"], 2)):
            assert subprocess.run([STEPSET, *argv], env=env, stderr=full, timeout=60).returncode == code


@pytest.mark.parametrize("command", ["status", "logs", "wait", "cancel", "diagnose", "delete"])
def test_the_shell_completes_the_names_of_runs_and_jobs(home: Path, command: str) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home), "_STEPSET_COMPLETE": "complete_bash"}
    completion = {"COMP_WORDS": f"stepset {command} tra", "COMP_CWORD": "2"}
    done = subprocess.run([STEPSET], env={**env, **completion}, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    name, *jobs = done.stdout.split()
    assert name.startswith("train-")
    assert jobs == ([] if command == "delete" else ["train"])  # delete has the option --job


def test_the_shell_completes_commands_and_flags(tmp_path: Path) -> None:
    def completed(words: str) -> set[str]:
        env = {
            **os.environ,
            "_STEPSET_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        return set(subprocess.run([STEPSET], env=env, capture_output=True, text=True, timeout=60).stdout.split())

    assert completed("stepset di") == {"diagnose"}
    assert {"--nodes", "--num-nodes"} <= completed("stepset run --n")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("run --framework torcht", {"torchtune"}),
        ("list --phase succ", {"succeeded"}),
        ("list -o w", {"wide"}),
        ("render -o y", {"yaml"}),
        ("delete --job tra", {"train"}),
        ("run tra", set()),
        ("failures OutO", {"OutOfMemory"}),
        ("run --target st", {"statefulset"}),
        ("validate --target tr", {"trainjob"}),
        ("render -t v", {"volcano"}),
        ("rbac --target jobs", {"jobset"}),
    ],
)
def test_the_shell_completes_the_values_of_options(home: Path, words: str, completed: set[str]) -> None:
    assert set(_completed(words, home)) == completed


def test_the_shell_completes_the_run_that_is_resumed(home: Path) -> None:
    name, job = _completed("run --resume tra", home)
    assert (name.startswith("train-"), job) == (True, "train")


def _completed(words: str, home: Path) -> list[str]:
    env = {**os.environ, "STEPSET_HOME": str(home), "_STEPSET_COMPLETE": "complete_bash"}
    completion = {"COMP_WORDS": f"stepset {words}", "COMP_CWORD": str(1 + words.count(" "))}
    done = subprocess.run([STEPSET], env={**env, **completion}, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_completion_script_is_shown(program: Cli) -> None:
    result = program("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert result.code == 0
    assert "_STEPSET_COMPLETE=complete_bash" in result.out
