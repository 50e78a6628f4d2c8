"""A rank of torch hangs, and the events of all ranks show where. Ranks that work are busy, and are not reported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hangs.conftest import Ranks, free_port, main_process, stack, waits

pytestmark = pytest.mark.frameworks
Start = Callable[..., Ranks]
PROGRAM = str(Path(__file__).parent / "train.py")
LINES = Path(PROGRAM).read_text().split("\n")


@pytest.mark.parametrize("case", ["lock", "subprocess", "pipe", "socket"])
def test_the_stack_of_the_guilty_rank_shows_the_call_and_the_other_waits_for_it(start: Start, case: str) -> None:
    events = start(sys.executable, PROGRAM, case).stalled(0, 1)
    guilty = main_process(events[1])
    (line,) = [frame[2] for frame in guilty["threads"][0]["frames"] if frame[0] == "planted"]
    assert f'"{case}"' in "".join(LINES[line - 5 : line])
    assert not guilty["busy"]
    assert not guilty["gil"]
    assert waits(events[1]) == []
    ((name, seq, done),) = waits(events[0])
    assert (name, seq) == ("all_reduce", done + 1)
    assert [each["done"] for each in events[1]["collectives"] if each["desc"] == "default_pg"] == [done]
    assert "all_reduce" in stack(main_process(events[0]))
    assert not main_process(events[0])["busy"]
    assert events[0]["silent"] >= 4


def test_a_data_set_is_shown(start: Start) -> None:
    events = start(sys.executable, PROGRAM, "data").stalled(0, 1)
    assert stack(main_process(events[1]))[0] == "__getitem__"
    assert waits(events[0])[0][0] == "all_reduce"
    (group,) = [each for each in events[0]["collectives"] if each["seq"]]
    expected = {"backend": "gloo", "sizes": [[1, 4]], "dtype": "float32", "p2p": False}
    assert {key: group[key] for key in expected} == expected
    assert group["age"] >= 3


def test_a_worker_of_the_data_loader_is_shown(start: Start) -> None:
    events = start(sys.executable, PROGRAM, "worker").stalled(0, 1)
    (worker,) = [each for each in events[1]["processes"] if each["kind"] == "worker"]
    assert stack(worker)[0] == "__getitem__"
    assert "_worker_loop" in stack(worker)
    assert "__next__" in stack(main_process(events[1]))


def test_a_stopped_rank_is_shown(start: Start) -> None:
    guilty = main_process(start(sys.executable, PROGRAM, "stop").stalled(0, 1)[1])
    assert (guilty["state"], guilty["why"]) == ("T", "stopped by a signal")


def test_a_rank_that_holds_the_gil_is_shown(start: Start) -> None:
    events = start(sys.executable, PROGRAM, "gil").stalled(0, 1)
    assert main_process(events[1])["gil"]
    assert stack(main_process(events[1]))[0] == "planted"
    assert not main_process(events[0])["gil"]


def test_an_endless_loop_is_busy(start: Start) -> None:
    events = start(sys.executable, PROGRAM, "loop").stalled(0, 1)
    guilty = main_process(events[1])
    assert guilty["busy"]
    assert guilty["cpu"] > 0.05
    assert not guilty["changed"] or "planted" in stack(guilty)


def test_a_long_evaluation_is_busy_and_then_the_run_resumes(start: Start) -> None:
    ranks = start(sys.executable, PROGRAM, "evaluation", "25")
    events = ranks.stalled(0, 1)
    assert main_process(events[1])["busy"]
    assert "planted" in stack(main_process(events[1]))
    assert not main_process(events[0])["busy"]
    ranks.running[0].wait_for_line(b'{"event": "resumed"')
    assert ranks.running[0].end().exit_code == 0


def test_when_a_rank_has_left_the_other_shows_where_it_waits(start: Start) -> None:
    ranks = start(sys.executable, PROGRAM, "left")
    events = ranks.stalled(0)
    assert set(events) == {0}
    assert "<module>" in stack(main_process(events[0]))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("kind", [("all_reduce", "default_pg"), ("broadcast", "default_pg")]),
        ("size", [("broadcast", "default_pg"), ("broadcast", "default_pg")]),
        ("order", [("all_reduce", "second"), ("all_reduce", "default_pg")]),
    ],
)
def test_ranks_that_disagree_show_different_collectives(start: Start, case: str, expected: list[object]) -> None:
    events = start(sys.executable, PROGRAM, case).stalled(0, 1)
    found = [each for rank in (0, 1) for each in events[rank]["collectives"] if each["seq"]]
    if case == "order":
        assert sorted((each["name"], each["desc"]) for each in found) == sorted(expected)  # type: ignore[type-var]
    else:
        assert [(each["name"], each["desc"]) for each in found] == expected
    assert (found[0]["sizes"] != found[1]["sizes"]) == (case == "size")
    assert all("mismatched" in stack(main_process(events[rank])) for rank in (0, 1))


STATIC = ["--nnodes", "1", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port"]
ELASTIC = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-conf", "last_call_timeout=1", "--rdzv-endpoint"]


@pytest.mark.parametrize("options", [STATIC, ELASTIC], ids=["static", "elastic"])
def test_ranks_of_torchrun_are_sampled(start: Start, options: list[str]) -> None:
    address = str(free_port()) if options is STATIC else f"127.0.0.1:{free_port()}"
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *options,
        address,
        "--nproc-per-node",
        "2",
        "--no-python",
    ]
    config = {"launcher": torchrun, "program": [sys.executable, "-u"], "command_len": 1}
    events = start("torchrun", PROGRAM, "lock", **config).stalled(0, 1)
    assert "planted" in stack(main_process(events[1]))
    assert waits(events[0])[0][0] == "all_reduce"


@pytest.mark.parametrize(
    ("case", "function"),
    [("lock", "planted"), ("subprocess", "planted"), ("socket", "planted"), ("data", "__getitem__")],
)
def test_ranks_of_deepspeed_are_sampled(start: Start, tmp_path: Path, case: str, function: str) -> None:
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("127.0.0.1 slots=2\n")
    deepspeed = [str(Path(sys.executable).parent / "deepspeed"), "--hostfile", str(hostfile), "--no_ssh"]
    deepspeed += ["--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    launcher = [*deepspeed, "--no_python", "--no_local_rank"]
    config = {"launcher": launcher, "program": [sys.executable, "-u"], "command_len": 1}
    events = start("deepspeed", PROGRAM, case, env={"DS_ACCELERATOR": "cpu"}, **config).stalled(0, 1)
    assert function in stack(main_process(events[1]))
    assert waits(events[0])[0][0] == "all_reduce"


def test_a_rendezvous_that_lacks_a_node_is_reported_for_the_launcher(start: Start) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--rdzv-backend", "c10d"]
    config = {
        "launcher": [*torchrun, "--rdzv-endpoint", "127.0.0.1:0", "--no-python"],
        "program": [sys.executable, "-u"],
        "command_len": 1,
        "hang": {"after": 4, "first": 20},
    }
    event = start("torchrun", PROGRAM, "lock", **config).stalled(None)[None]
    assert any("rendezvous" in frame[1] for frame in event["processes"][0]["threads"][0]["frames"])


def test_steps_of_equal_length_are_not_reported(start: Start) -> None:
    ranks = start(sys.executable, PROGRAM, "slow", "0.8", hang={"after": 1, "first": 120})
    ended = ranks.running[0].end()
    assert ended.exit_code == 0
    assert ended.out.count(b"] step ") == 2 * 40
    assert not ended.events("stalled")
