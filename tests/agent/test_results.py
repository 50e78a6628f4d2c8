"""Rank 0's result is reported unchanged, or rejected with a reason."""

from __future__ import annotations

import json

import pytest

from tests.agent.pods import Both, Pod


def test_the_result_is_in_the_termination_log_and_in_an_event(both: Both) -> None:
    ended = both.run('[ $RANK = 0 ] && echo \'{"loss": 0.25,\n "name": "é"}\' > $STEPSET_RESULT_FILE; exit 0', 2)
    assert ended.log == '{"loss": 0.25,\n "name": "é"}\n'.encode()
    assert ended.event("result")["result"] == {"loss": 0.25, "name": "é"}
    assert ended.exit_code == 0


def test_a_missing_result_is_not_a_failure(both: Both) -> None:
    ended = both.run("exit 0")
    assert (ended.exit_code, ended.log, ended.events("result")) == (0, b"", [])


def test_a_result_of_4096_bytes_is_accepted(pod: Pod) -> None:
    text = json.dumps("x" * 4094)
    ended = pod.run_ranks(f"printf %s '{text}' > $STEPSET_RESULT_FILE")
    assert (ended.exit_code, ended.log) == (0, text.encode())


def test_a_larger_result_is_rejected_with_its_size_the_limit_and_a_remedy(both: Both) -> None:
    ended = both.run(f"printf %s '{json.dumps('x' * 4095)}' > $STEPSET_RESULT_FILE")
    assert ended.exit_code == 72
    assert ended.event("failed")["kind"] == ended.verdict["kind"] == "Rejected"
    assert ended.verdict["exit_code"] == 72
    for word in ("4097 bytes", "4096", "URI"):
        assert word in ended.verdict["error"]
    assert ended.events("result") == []


@pytest.mark.parametrize("content", ["{'a': 1}", "", "{} {}", r"\377", "[" * 4000])
def test_a_result_that_is_not_json_is_rejected(pod: Pod, content: str) -> None:
    (pod.directory / "content").write_bytes(content.replace(r"\377", "\xff").encode("latin-1"))
    ended = pod.run_ranks(f"cp {pod.directory}/content $STEPSET_RESULT_FILE")
    assert (ended.exit_code, ended.verdict["kind"]) == (72, "Rejected")
    assert "not JSON" in ended.verdict["error"]


def test_a_failed_run_has_no_result(pod: Pod) -> None:
    ended = pod.run_ranks("echo 1 > $STEPSET_RESULT_FILE; exit 3")
    assert (ended.exit_code, ended.events("result")) == (3, [])
    assert ended.verdict["exit_code"] == 3


def test_the_result_of_an_earlier_attempt_does_not_count(pod: Pod) -> None:
    pod.dir.mkdir()
    (pod.dir / "result").write_text("1")
    assert pod.run_ranks("exit 0").log == b""


def test_only_the_pod_of_rank_0_has_the_result(pod: Pod) -> None:
    ended = pod.run_ranks("echo $RANK > $STEPSET_RESULT_FILE", 2, env={"STEPSET_NODE_RANK": "1"})
    assert (ended.log, ended.events("result")) == (b"", [])


def test_a_command_that_starts_ranks_by_itself_may_leave_the_result_in_any_pod(pod: Pod) -> None:
    ended = pod.run("/bin/sh", "-c", "echo 5 > $STEPSET_RESULT_FILE", env={"STEPSET_NODE_RANK": "1"})
    assert ended.event("result")["result"] == 5


def test_the_environment_can_name_the_result_file(pod: Pod) -> None:
    path = pod.directory / "made" / "for" / "it.json"
    ended = pod.run_ranks("echo 7 > $STEPSET_RESULT_FILE", env={"STEPSET_RESULT_FILE": str(path)})
    assert (ended.log, path.read_text()) == (b"7\n", "7\n")


def test_another_limit_can_be_set(pod: Pod) -> None:
    assert pod.run_ranks("echo 123456 > $STEPSET_RESULT_FILE", result_limit=5).exit_code == 72


def test_a_termination_log_that_cannot_be_written_does_not_change_the_exit_code(pod: Pod) -> None:
    ended = pod.run_ranks("exit 4", termination_log="/nonexistent/log")
    assert ended.exit_code == 4
    assert ended.err == b"stepset: cannot write /nonexistent/log: No such file or directory\n"
