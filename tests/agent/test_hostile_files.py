"""Files and events of a training that are not what the agent expects: one message, no hang, no unbounded memory."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.agent.pods import Both, Pod
from tests.agent.test_launchers import run_mpi

LINK, DEVICE = "ln -s $PWD/none $STEPSET_RESULT_FILE", "ln -s /dev/zero $STEPSET_RESULT_FILE"
FIFO, DIRECTORY = "mkfifo $STEPSET_RESULT_FILE", "mkdir $STEPSET_RESULT_FILE"


@pytest.mark.parametrize(
    ("command", "reason"),
    [(LINK, "link"), (DEVICE, "link"), (FIFO, "not a regular file"), (DIRECTORY, "not a regular file")],
)
def test_a_result_that_is_no_regular_file_is_rejected(both: Both, command: str, reason: str) -> None:
    ended = both.run(f"if [ $RANK = 0 ]; then {command}; fi", 2)
    assert (ended.exit_code, ended.verdict["kind"], ended.events("result")) == (72, "Rejected", [])
    assert reason in ended.verdict["error"]


def test_a_result_that_another_pod_could_not_read_is_rejected(any_pod: Pod) -> None:
    ended = run_mpi(any_pod, "[ $OMPI_COMM_WORLD_RANK = 1 ] || mkfifo $STEPSET_RESULT_FILE", 2)
    assert (ended.exit_code, ended.verdict["kind"]) == (72, "Rejected")
    assert "not a regular file" in ended.verdict["error"]


@pytest.mark.parametrize("content", ["bytes(10 ** 7)", "b'\\xff'", "b'[' * 101 + b']' * 101"])
def test_a_result_of_bad_content_is_rejected(pod: Pod, content: str) -> None:
    (pod.directory / "write").write_text(f"import os; open(os.environ['STEPSET_RESULT_FILE'], 'wb').write({content})")
    ended = pod.run_ranks(f"exec {sys.executable} {pod.directory}/write")
    assert (ended.exit_code, ended.verdict["kind"], len(ended.events("failed"))) == (72, "Rejected", 1)


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1, "a": 2}', {"a": 2}), ('{"a": Infinity}', {"a": float("inf")}), ("9" * 400, None)]
)
def test_a_result_that_python_reads_as_json_is_accepted(pod: Pod, text: str, value: object) -> None:
    ended = pod.run_ranks(f"printf %s '{text}' > $STEPSET_RESULT_FILE")
    assert ended.exit_code == 0
    assert ended.event("result")["result"] == (value or int(text))


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "nested", "huge", "not utf-8", "other types"])
def test_an_error_file_never_blocks_the_agent_and_keeps_the_exit_code(both: Both, kind: str) -> None:
    path = both.pod.directory / "error.json"
    contents = {"nested": b"[" * 100_000, "not utf-8": b"\xff", "other types": b'{"message": {"message": [[[1]]]}}'}
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(4 << 30)
    else:
        path.write_bytes(contents[kind])
    # The agent removes the file of an earlier attempt: the training puts it back.
    script = f"mv {path} $TORCHELASTIC_ERROR_FILE; echo 'ValueError: mine' >&2; exit 7"
    ended = both.run(script)
    assert (ended.verdict["exit_code"], ended.verdict["error"]) == (7, "ValueError: mine")


@pytest.mark.parametrize(
    "event",
    [
        "[" * 100_000,
        '{"event": "failed", "rank": 0, "at": "abc", "error": ""}',
        '{"event": "failed", "rank": 0, "at": 1, "error": 7}',
        '{"event": "failed", "rank": 0, "at": 1e400, "error": ""}',
        '{"event": "failed", "rank": 0, "at": 1, "error": "", "exit_code": 1e400}',
        '{"event": "failed", "rank": [], "at": 1}',
        '{"event": "started", "rank": 0, "local_rank": 0, "wrapper": "me"}',
        '{"event": "started", "rank": 0, "local_rank": 0, "wrapper": 1208925819614629174706176}',
        '{"event": "result", "size": "x", "text": "1"}',
        '{"event": "result", "size": 1e400, "text": "1"}',
        '{"event": ["failed"]}',
    ],
)
def test_a_forged_event_of_wrong_form_is_only_a_line(pod: Pod, event: str) -> None:
    path = pod.directory / "event"
    path.write_text(f"[stepset] {event}\n")
    ended = pod.run_launched(f"cat {path} > {pod.dir}/out; sleep 0.2; exit 7")
    assert (ended.verdict["rank"], ended.verdict["exit_code"]) == (0, 7)
    assert f"[stepset] {event}\n".encode() in ended.out


def test_the_texts_of_a_forged_failure_are_cut(pod: Pod) -> None:
    long = "x" * 5000
    event = {"event": "failed", "rank": 0, "at": 1, "error": long, "kind": long, "tail": [long] * 50, long: long}
    path = pod.directory / "event"
    path.write_text(f"[stepset] {json.dumps(event)}\n")
    ended = pod.run_launched(f"cat {path} > {pod.dir}/out; sleep 0.2; exit 7")
    assert len(ended.log) <= 4096
    assert (ended.verdict["rank"], ended.verdict["kind"]) == (0, "x" * 40)


def test_a_termination_log_that_became_a_pipe_does_not_block(pod: Pod) -> None:
    log = pod.directory / "pipe"
    ended = pod.run_ranks(f"mkfifo {log}; exit 7", termination_log=str(log))
    assert ended.exit_code == 7
    assert b"cannot write" in ended.err
