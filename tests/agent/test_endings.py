"""The agent ends as its command ends."""

from __future__ import annotations

import signal

import pytest

from tests.agent.pods import Pod


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_agent_exits_with_the_code_of_the_command(any_pod: Pod, code: int) -> None:
    assert any_pod.run("/bin/sh", "-c", f"exit {code}").exit_code == code


def test_a_command_ended_by_signal_n_is_exit_code_128_plus_n(pod: Pod) -> None:
    ended = pod.run_ranks("kill -SEGV $$")
    assert ended.exit_code == 128 + signal.SIGSEGV
    assert ended.event("exited")["signal"] == signal.SIGSEGV
    assert "exit_code" not in ended.event("failed")


def test_every_copy_is_reported_at_its_start_and_end(any_pod: Pod) -> None:
    ended = any_pod.run_ranks("exit 0", 3, env={"STEPSET_NODE_RANK": "2"})
    assert [(e["rank"], e["local_rank"]) for e in ended.events("started")] == [(6, 0), (7, 1), (8, 2)]
    assert sorted((e["rank"], e["exit_code"]) for e in ended.events("exited")) == [(6, 0), (7, 0), (8, 0)]
    assert ended.events("failed") == []
    assert ended.exit_code == 0


def test_the_rank_that_fails_first_gives_the_exit_code_and_the_verdict(pod: Pod) -> None:
    first = '[ "$RANK" = 1 ] && { echo $$ > pid; exit 5; }'
    others = "while [ ! -s pid ] || kill -0 $(cat pid); do sleep 0.02; done; exit 6"
    ended = pod.run_ranks(f"{first}; {others} 2> /dev/null", 3, work_dir=str(pod.directory))
    assert ended.exit_code == 5
    assert (ended.verdict["rank"], ended.verdict["exit_code"]) == (1, 5)


def test_the_other_ranks_are_stopped_after_a_failure(pod: Pod) -> None:
    ended = pod.run_ranks('[ "$RANK" = 1 ] && exit 5; exec sleep 1000', 2)
    assert ended.exit_code == 5
    assert {e["rank"]: e.get("signal", e.get("exit_code")) for e in ended.events("exited")} == {0: signal.SIGTERM, 1: 5}
    assert [e["rank"] for e in ended.events("failed")] == [1]


def test_an_end_is_reported_after_the_last_line(pod: Pod) -> None:
    ended = pod.run_ranks("echo last words; exit 3")
    order = [line.split(b"] ", 1)[0] for line in ended.out.splitlines()]
    assert order == [b"[stepset", b"[rank 0", b"[stepset", b"[stepset"]
    assert ended.events("failed")[0]["exit_code"] == 3


def test_a_missing_program_is_exit_code_127_with_a_message(pod: Pod) -> None:
    ended = pod.run("no-such-program", processes=1)
    assert ended.exit_code == 127
    assert ended.verdict["error"] == "stepset: cannot start no-such-program: not found on PATH"


def test_a_file_that_is_not_executable_is_exit_code_126_with_a_message(pod: Pod) -> None:
    pod.directory.joinpath("data").write_text("no program")
    ended = pod.run(str(pod.directory / "data"), processes=1)
    assert ended.exit_code == 126
    assert "Permission denied" in ended.verdict["error"]


def test_a_role_beside_the_world_has_no_rank_and_no_result(pod: Pod) -> None:
    ended = pod.run(
        "/bin/sh", "-c", "echo $STEPSET_RESULT_FILE.; exit 4", group="prepare", source="prepare-{node_rank}",
        in_world=False, env={"JOB_COMPLETION_INDEX": "3"},
    )  # fmt: skip
    assert ended.lines("prepare-3") == [b"."]
    assert ended.events("started") == ended.events("exited") == []
    assert ended.exit_code == ended.event("failed")["exit_code"] == 4
    assert "rank" not in ended.verdict


def test_the_agent_does_not_wait_for_a_daemon_that_the_command_leaves_behind(pod: Pod) -> None:
    with pod.start("/bin/sh", "-c", "setsid sleep 1000 & echo started", processes=1) as running:
        ended = running.end()
        assert ended.exit_code == 0
        assert ended.lines("rank 0") == [b"started"]
        assert running.alive() == []


def test_a_program_starts_with_the_default_signal_handling(pod: Pod) -> None:
    ended = pod.run("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status", processes=1)
    masks = dict(line.split(b":\t") for line in ended.lines("rank 0"))
    # Signals from 32 on belong to the C library; the program ignores only those that the tests ignore.
    classic = (1 << 31) - 1
    assert {name: int(mask, 16) & classic for name, mask in masks.items()} == {b"SigBlk": 0, b"SigIgn": 0}


def test_a_program_has_only_its_three_standard_files_open(pod: Pod) -> None:
    assert pod.run("ls", "/proc/self/fd", processes=2).lines("rank 1") == [b"0", b"1", b"2", b"3"]  # 3: ls reads there


def test_an_agent_with_closed_standard_files_does_not_reuse_their_numbers(pod: Pod) -> None:
    ended = pod.run("/bin/sh", "-c", "echo fine; exit 9", processes=1, before=["sh", "-c", 'exec "$@" <&- 2>&-', "sh"])
    assert ended.lines("rank 0") == [b"fine"]
    assert ended.exit_code == 9
