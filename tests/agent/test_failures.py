"""A failed run reports its first failure: the rank, how it ended, the error, its last lines."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.agent.diagnosis import failure_of
from stepset.agent.errors import MESSAGE_LIMIT
from stepset.agent.events import fitted
from stepset.agent.lines import Tail
from tests.agent.pods import Ended, Pod

PYTHON = f"{sys.executable} -I -S -c"


@pytest.mark.parametrize("run", [Pod.run_ranks, Pod.run_launched])
def test_the_error_is_the_exception_of_the_failed_rank(any_pod: Pod, run: Callable[..., Ended]) -> None:
    script = f"[ $RANK = 0 ] && exit 0; {PYTHON} \"print(1); d = dict(); d['learning rate']\""
    ended = run(any_pod, script, 2)
    assert ended.event("failed")["error"] == "KeyError: 'learning rate'"
    assert ended.verdict["error"] == "KeyError: 'learning rate'"
    assert (ended.verdict["rank"], ended.verdict["exit_code"]) == (1, 1)
    assert ended.exit_code == 1


def test_the_verdict_has_the_last_lines_of_the_failed_rank(pod: Pod) -> None:
    ended = pod.run_ranks('[ $RANK = 1 ] || exit 0; for i in $(seq 100); do echo "line $i"; done; exit 1', 2)
    assert ended.verdict["tail"] == [f"line {i}" for i in range(81, 101)]


def test_the_verdict_names_the_signal(any_pod: Pod) -> None:
    ended = any_pod.run_launched("[ $RANK = 1 ] && kill -KILL $$; exec sleep 1000", 2)
    assert (ended.verdict["rank"], ended.verdict["signal"]) == (1, signal.SIGKILL)
    assert "exit_code" not in ended.verdict


@pytest.mark.parametrize("run", [Pod.run_ranks, Pod.run_launched])
def test_a_rank_that_a_fatal_signal_ends_leaves_its_python_stack(any_pod: Pod, run: Callable[..., Ended]) -> None:
    script = any_pod.directory / "crash.py"
    script.write_text("import ctypes\n\n\ndef failed_read():\n    ctypes.string_at(0)\n\n\nfailed_read()\n")
    ended = run(any_pod, f"exec {sys.executable} {script}", 1)
    assert ended.verdict["error"] == "Fatal Python error: Segmentation fault"
    assert ended.verdict["signal"] == signal.SIGSEGV
    assert f'  File "{script}", line 5 in failed_read' in ended.verdict["tail"]


def test_the_reason_of_an_abort_is_the_error_and_not_pythons_stacks(pod: Pod) -> None:
    what = "  what():  Connection closed by peer"
    reason = f"import os; os.write(2, b'terminate called after throwing an Enforce\\n{what}\\n'); os.abort()"
    ended = pod.run_ranks(f'exec {sys.executable} -c "{reason}"')
    assert ended.verdict["signal"] == signal.SIGABRT
    assert "Fatal Python error: Aborted" in ended.verdict["tail"]
    assert ended.verdict["error"] == what.strip()


def test_the_rank_with_the_first_traceback_failed_first_even_if_it_exits_last(pod: Pod) -> None:
    traceback = "echo 'Traceback (most recent call last):'; echo"
    slow = f"{traceback} 'ValueError: mine'; while [ ! -s pid ] || kill -0 $(cat pid); do sleep 0.02; done; exit 1"
    fast = f"until [ -e received ]; do sleep 0.02; done; {traceback} 'ConnectionError: no peer'; echo $$ > pid; exit 1"
    script = f"if [ $RANK = 1 ]; then {slow}; else {fast}; fi 2> /dev/null"
    with pod.start_ranks(script, 2, work_dir=str(pod.directory)) as running:
        running.wait_for_line(b"ValueError: mine")
        (pod.directory / "received").touch()
        ended = running.end()
    assert [e["rank"] for e in ended.events("failed")] == [0, 1]
    assert (ended.verdict["rank"], ended.verdict["error"]) == (1, "ValueError: mine")


def test_a_rank_stopped_in_the_aftermath_is_not_a_failure(pod: Pod) -> None:
    wait = "until [ -e up0 ] && [ -e up1 ] && [ -e up3 ]; do sleep 0.02; done"
    script = f"[ $RANK = 2 ] && {{ {wait}; exit 9; }}; trap 'exit 33' TERM; touch up$RANK; sleep 1000 & wait"
    ended = pod.run_launched(script, 4, work_dir=str(pod.directory))
    assert [e["rank"] for e in ended.events("failed")] == [2]
    codes = {e["rank"]: e["exit_code"] for e in ended.events("exited")}
    assert codes == {0: 33, 1: 33, 2: 9, 3: 33}
    assert ended.exit_code == 1  # the launcher's own


def test_the_file_of_torchs_error_handler_has_priority(pod: Pod) -> None:
    error = {"message": {"message": "RuntimeError: recorded", "extraInfo": {"py_callstack": "...", "timestamp": "1"}}}
    script = f"""echo '{json.dumps(error)}' > $TORCHELASTIC_ERROR_FILE; echo 'ValueError: printed'; exit 1"""
    assert pod.run_ranks(script).verdict["error"] == "RuntimeError: recorded"
    assert pod.run("/bin/sh", "-c", script).verdict["error"] == "RuntimeError: recorded"


def test_an_error_file_of_an_earlier_attempt_does_not_count(pod: Pod) -> None:
    pod.dir.mkdir()
    (pod.dir / "error.json").write_text('{"message": "RuntimeError: old"}')
    assert pod.run_ranks("echo 'ValueError: new'; exit 1").verdict["error"] == "ValueError: new"


def test_the_jobs_own_error_file_is_unchanged(pod: Pod) -> None:
    path = str(pod.directory / "theirs.json")
    ended = pod.run_ranks("echo $TORCHELASTIC_ERROR_FILE", env={"TORCHELASTIC_ERROR_FILE": path})
    assert ended.lines("rank 0") == [path.encode()]


def test_without_a_traceback_the_last_line_that_looks_like_an_error_is_the_error(pod: Pod) -> None:
    ended = pod.run_ranks("echo step 1; echo 'train.py: error: unrecognized arguments: --foo'; echo bye; exit 2")
    assert ended.verdict["error"] == "train.py: error: unrecognized arguments: --foo"
    assert pod.run_ranks("echo step 1; echo loss 0.3; exit 2").verdict["error"] == ""


def test_a_success_writes_no_verdict(pod: Pod) -> None:
    assert pod.run_ranks("echo fine").log == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a memory cgroup")
def test_an_out_of_memory_kill_is_recognized_by_the_kernels_count(pod: Pod) -> None:
    root = Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes"
    if not root.is_dir():
        root, limit = Path("/sys/fs/cgroup"), "memory.max"
    group = root / f"stepset-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup here: {error}")
    try:
        into_group = ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        ended = pod.run_ranks(f"exec {PYTHON} 'x = [1] * (1 << 26)'", before=into_group)
        assert (ended.verdict["signal"], ended.verdict["kind"]) == (signal.SIGKILL, "OutOfMemory")
        ended = pod.run_ranks("kill -KILL $$", before=into_group)
        assert (ended.verdict["signal"], ended.verdict.get("kind")) == (signal.SIGKILL, None)
    finally:
        group.rmdir()


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.text(max_size=300).map(lambda t: t.encode("utf-8", "replace")),
            st.sampled_from(
                [b"Traceback (most recent call last):\n", b"Error: " + b"\x01" * 3000, b"\n", b"\xff" * 900]
            ),
        )
    ),
    st.integers(0, 255),
)
def test_the_verdict_always_fits_the_termination_log(output: list[bytes], code: int) -> None:
    tail = Tail()
    for chunk in output:
        tail.add(chunk)
    failure = {"rank": 3, **failure_of(code << 8, tail, {}, 0)}
    message = fitted(failure, MESSAGE_LIMIT, '{"stepset": {"failed": %s}}')
    assert len(message) <= 4096
    verdict = json.loads(message)["stepset"]["failed"]
    assert (verdict["rank"], verdict["exit_code"]) == (3, code)


def test_the_log_has_at_most_4096_bytes_for_any_output(pod: Pod) -> None:
    ended = pod.run_ranks("for i in $(seq 30); do head -c 900 /dev/urandom; echo; done; printf '\\377'; exit 1")
    assert 1000 < len(ended.log) <= 4096
    assert ended.verdict["exit_code"] == 1
