"""The text of `stepset stacks`: it fits a screen, and shows each group and the lines of the user's own code."""

from __future__ import annotations

from typing import Any

from stepset.watch.present.stacks_text import stacks_text
from stepset.watch.stacks.document import read_document
from stepset.watch.stacks.model import RunStacks
from tests.stacks import LIBRARY, WAITS, document, loading, process, waiting


def text_of(*ranks: dict[str, Any]) -> str:
    return stacks_text(RunStacks("digits-1", 0.0, read_document(document(*ranks))))


def test_ranks_with_the_same_stack_are_one_paragraph_with_the_lines_of_the_own_code() -> None:
    assert text_of(waiting(0), waiting(1), loading(2), waiting(3)) == (
        "run digits-1: 4 ranks, 2 stacks\n"
        "\n"
        "ranks 0, 1, 3 (3): waiting in all_reduce #1185 (gloo, float32, 4 MiB) for 5m10s,"
        " sleeping in futex_wait_queue\n"
        "    wait        distributed/distributed_c10d.py:3000\n"
        "    all_reduce  distributed/distributed_c10d.py:2900\n"
        "    backward    train.py:42\n"
        "    <module>    train.py:60\n"
        "\n"
        "rank 2 (1): sleeping in futex_wait_queue\n"
        "    wait      python3.11/selectors.py:415\n"
        "    __next__  data/dataloader.py:700\n"
        "    epoch     train.py:30\n"
        "    <module>  train.py:60\n"
        "\n"
        "worker (pid 23) of rank 2: sleeping in hrtimer_nanosleep\n"
        "    __getitem__   data.py:17\n"
        "    _worker_loop  _utils/worker.py:300"
    )


def test_a_rank_that_polls_in_mpi_shows_its_call() -> None:
    polls = {"kind": "rank", "state": "R", "call": "MPI_Recv", "threads": [], "why": "train is not Python"}
    computes = {**polls, "call": "", "busy": True}
    ranks = [{"rank": rank, "processes": [each]} for rank, each in enumerate((polls, computes, polls))]
    text = text_of(*ranks)
    assert "ranks 0, 2 (2): waiting in MPI_Recv, running, no Python stack: train is not Python" in text
    assert "rank 1 (1): working, no Python stack: train is not Python" in text


def test_long_stacks_show_the_innermost_frames_of_the_own_code() -> None:
    deep = [*WAITS[:2], *([["_call", f"{LIBRARY}/nn.py", 9]] * 20), *([["step", "/app/train.py", 5]] * 30)]
    text = text_of({"rank": 0, "processes": [process(deep)]})
    assert (
        "    wait  distributed/distributed_c10d.py:3000\n    ... 21 frames of libraries\n    step  train.py:5" in text
    )
    assert text.endswith("    ... 21 outer frames")


def test_64_ranks_with_different_stacks_fit_a_screen_and_every_rank_is_named() -> None:
    ranks = [
        {"rank": n, "processes": [process([[f"f{n}", "/app/train.py", n], *WAITS]), process(WAITS, "worker")]}
        for n in range(64)
    ]
    text = text_of(*ranks)
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 120
    assert "ranks 8-63 (56): 56 more stacks" in text
    assert "64 workers of ranks 0-63: " in text


def test_lines_that_differ_within_a_group_are_left_out() -> None:
    ranks = [{"rank": n, "processes": [process([["step", "/app/train.py", n + 1]])]} for n in range(9)]
    assert text_of(*ranks).endswith("    step  train.py")


def test_a_process_without_a_stack_has_the_reason_and_control_characters_are_escaped() -> None:
    silent = process([], why="it did not answer\x1b[2J\nwithin 2 s", state="D", wchan="nfs_wait")
    text = text_of({"rank": 0, "processes": [silent]})
    assert text.splitlines()[2:] == [
        "rank 0 (1): in uninterruptible sleep in nfs_wait, no Python stack: it did not answer\\nwithin 2 s"
    ]
    assert "the global lock" not in text


def test_a_rank_that_works_or_whose_global_lock_is_held_is_marked() -> None:
    busy, held = process(WAITS, busy=True, state="R"), process(WAITS, gil=True)
    assert "rank 0 (1): working\n" in text_of({"rank": 0, "processes": [busy]})
    assert "Python's global lock is held, sleeping" in text_of({"rank": 0, "processes": [held]})


def test_the_size_of_a_collective_is_stated_if_it_is_known() -> None:
    for sizes, dtype, expected in (
        ([[2]], "float32", "(gloo, float32, 8 bytes)"),
        ([[1024, 1024], [512]], "bfloat16", "(gloo, bfloat16, 2.001 MiB)"),
        ([[0]], "float32", "(gloo, float32, 0 bytes)"),
        ([[5]], "strange", "(gloo, strange)"),
        ([[2**52] * 8] * 16, "int64", "(gloo, int64)"),
        ([[2**52]], "int64", " TiB)"),
    ):
        rank = waiting(0)
        rank["collectives"] = [{**rank["collectives"][0], "sizes": sizes, "dtype": dtype}]
        assert expected in text_of(rank)
